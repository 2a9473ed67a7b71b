// SPDX-License-Identifier: BSD-2-Clause
//
// Device profiles: what the emulated device offers, as a TOML file (docs/PROFILES.md).
#pragma once

#include <string>

#include "fabric/device_limits.h"

namespace verbena::tool {

// Where the profiles that come with Verbena lie, relative to the folder of the command.
std::string profiles_folder();

// Reads the profile that `word` names: a file, when it holds a '/' or ends in ".toml", else one of those that
// come with Verbena. False: it cannot be used, and *problem says "FILE:LINE: the rule" in one line.
bool read_profile(const std::string& word, DeviceLimits* out, std::string* problem);

// The same, of text; `file` is named in problems and names the profile if the text does not.
bool parse_profile(const std::string& text, const std::string& file, DeviceLimits* out, std::string* problem);

}  // namespace verbena::tool
