// SPDX-License-Identifier: BSD-2-Clause
//
// Device profiles: the limits of the emulated device, as a TOML file (docs/PROFILES.md).
#pragma once

#include <string>

#include "fabric/device_limits.h"

namespace verbena::tool {

// The folder of the profiles that come with Verbena, found from the path of the command; "": unknown.
std::string profiles_folder();

// Reads the profile that `word` names: a file if it has a '/' or ends in ".toml", otherwise a profile that
// comes with Verbena. False: it cannot be used; *problem is then one line, "FILE:LINE: the rule".
bool read_profile(const std::string& word, DeviceLimits* out, std::string* problem);

// The same for a text. `file` is named in problems, and names the profile if the text does not.
bool parse_profile(const std::string& text, const std::string& file, DeviceLimits* out, std::string* problem);

}  // namespace verbena::tool
