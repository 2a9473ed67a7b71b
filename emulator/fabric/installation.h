// SPDX-License-Identifier: BSD-2-Clause
//
// Where the parts of Verbena lie, as the calling program sees them. `verbena` finds its libraries relative to
// itself, so that a build folder, an installed tree and a copied one all work without configuration.
#pragma once

#include <string>

namespace verbena {

struct Installation {
  std::string library_folder;  // absolute
  std::string preload;         // <library_folder>/libverbena-preload.so
  // The value for RDMAV_DRIVERS: <library_folder>/libverbena. libibverbs appends "-rdmav<ABI>.so" itself
  // (libibverbs/dynamic_driver.c): a link to the provider.
  std::string driver;
};

inline constexpr const char* kPreloadFile = "libverbena-preload.so";
inline constexpr const char* kDriverStem = "libverbena";

// Looks in the installed place, then in that of a build folder, both relative to the folder of
// /proc/self/exe. 0; ENOENT: *problem names the places; EINVAL: the path has a character that LD_PRELOAD or
// RDMAV_DRIVERS treats as a separator.
int find_installation(Installation* out, std::string* problem);

// The same, for a program in `folder`.
int find_installation_from(const std::string& folder, Installation* out, std::string* problem);

}  // namespace verbena
