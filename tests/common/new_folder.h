// SPDX-License-Identifier: BSD-2-Clause
//
// A new folder for what a test leaves, in $TMPDIR or /tmp: "verbena-", for what, and six characters of
// mkdtemp(3). Short, since the addresses of unix sockets, 107 characters at most, are made of it. "": none
// can be made, errno says why. It is the caller's to remove.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace verbena::test {

inline std::string new_folder(const char* what) {
  std::error_code none;
  std::string name = (std::filesystem::temp_directory_path(none) / "verbena-").string() + what + "-XXXXXX";
  return mkdtemp(name.data()) != nullptr ? name : std::string();
}

}  // namespace verbena::test
