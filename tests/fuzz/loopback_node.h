// SPDX-License-Identifier: BSD-2-Clause
//
// A node with a network, on an address of this machine that no other run of these programs has.
#pragma once

#include <string>

#include "fabric/node.h"
#include "input.h"
#include "support/loopback.h"

namespace verbena::fuzz {

using wire::loopback;

inline NetworkKey fabric_key() {
  NetworkKey key;
  key.fill(7);
  return key;
}

// Makes the node of loopback(last) in `folder`; its path.
inline std::string make_node(const std::string& folder, uint8_t last, uint16_t port) {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.port = port;
  options.network.addresses = {loopback(last).bytes};
  options.network.key = fabric_key();
  const std::string node = folder + "/n" + std::to_string(last);
  std::string problem;
  require(ensure_node(node, options, &problem) == 0, problem.c_str());
  return node;
}

}  // namespace verbena::fuzz
