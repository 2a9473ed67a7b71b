// SPDX-License-Identifier: BSD-2-Clause
//
// A folder for one test, in $TMPDIR; removed with its contents when the test ends.
#pragma once

#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "common/new_folder.h"

namespace verbena {

class TemporaryFolder {
 public:
  TemporaryFolder() { EXPECT_FALSE(path_.empty()) << strerror(errno); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_ = test::new_folder("unit");
};

}  // namespace verbena
