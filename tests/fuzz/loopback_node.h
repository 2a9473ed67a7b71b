// SPDX-License-Identifier: BSD-2-Clause
//
// Nodes with a network, on addresses of this machine that no other run of these programs has.
#pragma once

#include <filesystem>
#include <string>

#include "common/loopback.h"
#include "common/new_folder.h"
#include "fabric/node.h"
#include "input.h"

namespace verbena::fuzz {

using wire::loopback;

inline NetworkKey fabric_key() {
  NetworkKey key;
  key.fill(7);
  return key;
}

// Makes a folder for temporary files.
inline std::string make_folder() {
  std::string folder = test::new_folder("fuzz");
  require(!folder.empty(), "there is room for temporary files");
  return folder;
}

// Removes the folder when the process ends.
struct RemoveAtExit {
  const std::string& folder;
  ~RemoveAtExit() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};

// Makes the node of loopback(last) in `folder`; returns its path.
inline std::string make_node(const std::string& folder, uint8_t last, uint16_t port,
                             NetworkKind kind = NetworkKind::kFrames) {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.kind = kind;
  options.network.port = port;
  options.network.addresses = {loopback(last).bytes};
  options.network.key = fabric_key();
  const std::string node = folder + "/n" + std::to_string(last);
  std::string problem;
  require(ensure_node(node, options, &problem) == 0, problem.c_str());
  return node;
}

}  // namespace verbena::fuzz
