// SPDX-License-Identifier: BSD-2-Clause
//
// A folder of its own for one test, gone with all that is in it when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace verbena {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/verbena-unit-XXXXXX";  // short: addresses of unix sockets are made of it
    if (mkdtemp(name) != nullptr) path_ = name;
    EXPECT_FALSE(path_.empty()) << "no folder can be made in /tmp";
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace verbena
