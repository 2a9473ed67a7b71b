// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/kick.h"

#include "fabric/fifo.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/service_socket.h"
#include "fabric/slot_folder.h"
#include "no_cancellation.h"

namespace verbena {

bool kick_slot(const NodeDirectory& directory, const std::string& node, uint32_t slot, uint32_t generation) {
  if (slot >= kMaxSlots || !directory.alive(slot, generation)) return false;
  const SlotAddress address = slot_address(directory, node, slot, generation);
  const NoCancellation guard;
  Descriptor folder;
  FifoEnd fifo;
  const char byte = 0;
  if (open_slot_folder(address, &folder) == 0 && fifo.open(folder.fd, "kick") == 0)
    fifo.write(&byte, 1);  // a full pipe wakes as well
  else
    wake(address);
  return true;
}

void wake(const SlotAddress& owner) {
  const NoCancellation guard;
  MessageSocket connection;
  static_cast<void>(call_service(owner, ServiceNumber::kWake, {}, &connection));
}

}  // namespace verbena
