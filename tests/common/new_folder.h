// SPDX-License-Identifier: BSD-2-Clause
//
// Makes a folder for what a test leaves behind, in $TMPDIR or /tmp: "verbena-", the purpose, and six
// characters of mkdtemp(3). The path is short, since it becomes part of unix socket addresses (107 characters
// at most). "" and errno: it cannot be made. The caller removes it.
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
