// SPDX-License-Identifier: BSD-2-Clause
//
// The device file that is opened in place of uverbsN. The `dev` files of the node have the same number, 1:7
// (Documentation/admin-guide/devices.txt). It is a character device, and
// - ioctl(2) fails with ENOTTY, so libibverbs sends its commands by write(2);
// - write(2) fails with ENOSPC, so a command that no handler takes fails.
#pragma once

namespace verbena {

inline constexpr char kPlaceholder[] = "/dev/full";
inline constexpr unsigned kPlaceholderMajor = 1;
inline constexpr unsigned kPlaceholderMinor = 7;

}  // namespace verbena
