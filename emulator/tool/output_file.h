// SPDX-License-Identifier: BSD-2-Clause
//
// Files that a command writes at its end.
#pragma once

#include <string>

namespace verbena::tool {

// Asked before the program runs, so that what it takes minutes to make is not lost. Makes the file if it is not
// there, and leaves its contents alone. "", "-": nothing is to be written there. False: *problem says why not.
bool can_write(const std::string& path, std::string* problem);

// Writes the whole file. False: *problem says why not.
bool write_text(const std::string& path, const std::string& text, std::string* problem);

}  // namespace verbena::tool
