// SPDX-License-Identifier: BSD-2-Clause
//
// A new folder for what a test leaves, in $TMPDIR or /tmp: "verbena-", for what, and six characters of
// mkdtemp(3). Short, since the addresses of unix sockets, 107 characters at most, are made of it. "": none
// can be made, errno says why. It is the caller's to remove.
#pragma once

#include <errno.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace verbena::test {

inline std::string new_folder(const char* what) {
  std::error_code error;
  const std::filesystem::path root = std::filesystem::temp_directory_path(error);
  if (error) {
    errno = error.value();
    return {};
  }
  std::string name = (root / "verbena-").string() + what + "-XXXXXX";  // mkdtemp(3) wants six X
  return mkdtemp(name.data()) != nullptr ? name : std::string();
}

}  // namespace verbena::test
