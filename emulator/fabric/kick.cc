// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/kick.h"

#include "fabric/fifo.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"

namespace verbena {

bool kick_slot(const NodeDirectory& directory, const std::string& node, uint32_t slot, uint32_t generation) {
  if (slot >= kMaxSlots || !directory.alive(slot, generation)) return false;
  FifoEnd fifo;
  const char byte = 0;
  if (fifo.open(slot_folder(node, slot, generation) + "/kick") != 0) return false;
  fifo.write(&byte, 1);  // a full pipe wakes as well
  return true;
}

}  // namespace verbena
