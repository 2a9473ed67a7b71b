// SPDX-License-Identifier: BSD-2-Clause
//
// A node for one test; VERBENA_NODE names it meanwhile.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "unit/common/temporary_folder.h"

namespace verbena {

class TemporaryNode {
 public:
  explicit TemporaryNode(const DeviceTableOptions& options = {.count = 2}) {
    if (folder_.path().empty()) return;
    path_ = folder_.path() + "/n";
    std::string problem;
    EXPECT_EQ(ensure_node(path_, options, &problem), 0) << problem;
    EXPECT_EQ(directory_.open(directory_path(path_).c_str()), 0);
    setenv(kNodeVariable, path_.c_str(), 1);
  }
  TemporaryNode(const TemporaryNode&) = delete;
  TemporaryNode& operator=(const TemporaryNode&) = delete;
  ~TemporaryNode() { unsetenv(kNodeVariable); }

  const std::string& folder() const { return folder_.path(); }  // private; for a test's other files
  const std::string& path() const { return path_; }
  const NodeDirectory& directory() const { return directory_; }
  size_t slot_folders() const {
    std::filesystem::directory_iterator all(path_ + "/slots");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  TemporaryFolder folder_;
  std::string path_;
  NodeDirectory directory_;
};

// Waits until `condition` holds, 20 seconds at most.
template <typename Condition>
bool eventually(Condition&& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    usleep(1000);
  }
  return condition();
}

}  // namespace verbena
