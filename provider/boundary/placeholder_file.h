// SPDX-License-Identifier: BSD-2-Clause
//
// The device file that is opened in place of uverbsN: 1:7 (Documentation/admin-guide/devices.txt), as in the
// node's `dev` files. It is a character device whose ioctl fails with ENOTTY, so that libibverbs sends
// commands by write(2), and whose write fails with ENOSPC, so that a command without a handler fails.
#pragma once

namespace verbena {

inline constexpr char kPlaceholder[] = "/dev/full";
inline constexpr unsigned kPlaceholderMajor = 1;
inline constexpr unsigned kPlaceholderMinor = 7;

}  // namespace verbena
