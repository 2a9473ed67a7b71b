// SPDX-License-Identifier: BSD-2-Clause
//
// Where a process of the node is reached: in the folder of its slot, and by an abstract socket (unix(7)) of
// the same meaning. A cleaner of old files may have deleted the folder, and another network namespace does
// not see the abstract socket.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace verbena {

class NodeDirectory;

struct SlotAddress {
  SlotAddress(std::string in) : folder(std::move(in)) {}  // NOLINT: enough for its socket

  std::string folder;
  std::string node, name;     // of the folder (slot_folder.h)
  std::string abstract_name;  // without the leading null byte; empty: none
};

// Of the process that has taken `slot` of the node at path `node` as `generation`.
SlotAddress slot_address(const NodeDirectory& directory, const std::string& node, uint32_t slot,
                         uint32_t generation);

}  // namespace verbena
