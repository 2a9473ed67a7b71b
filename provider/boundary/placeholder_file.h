// SPDX-License-Identifier: BSD-2-Clause
//
// The device file that is opened in place of uverbsN: 1:7 (Documentation/admin-guide/devices.txt), which the
// node's `dev` files name too. A character device whose ioctl says ENOTTY, so that libibverbs takes its write
// path, and whose write says ENOSPC, so that a command that nobody answers fails.
#pragma once

namespace verbena {

inline constexpr char kPlaceholder[] = "/dev/full";
inline constexpr unsigned kPlaceholderMajor = 1;
inline constexpr unsigned kPlaceholderMinor = 7;

}  // namespace verbena
