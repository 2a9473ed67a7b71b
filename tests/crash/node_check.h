// SPDX-License-Identifier: BSD-2-Clause
//
// What a node's directory and folders must look like when exactly these processes use it.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "fabric/node_directory.h"

namespace verbena::crash {

class NodeCheck {
 public:
  NodeCheck();  // the node of VERBENA_NODE

  // "", or what is wrong: a slot, folder or hazard record that no process owns, or a process without a slot.
  // A process must have entered since the last one died.
  std::string only(const std::set<pid_t>& living) const;
  bool has_qpn(uint32_t qpn) const;

 private:
  std::string node_;
  NodeDirectory directory_;
};

}  // namespace verbena::crash
