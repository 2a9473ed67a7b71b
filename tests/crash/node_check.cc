// SPDX-License-Identifier: BSD-2-Clause
#include "node_check.h"

#include <cstdlib>
#include <filesystem>

#include "driver.h"
#include "fabric/node.h"
#include "fabric/slot_folder.h"

namespace verbena::crash {

NodeCheck::NodeCheck() {
  const char* node = std::getenv(kNodeVariable);
  if (node == nullptr || directory_.open(directory_path(node).c_str()) != 0)
    throw Failure("no node to look at");
  node_ = node;
}

std::string NodeCheck::only(const std::set<pid_t>& living) const {
  std::set<pid_t> found;
  std::set<std::filesystem::path> folders;
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const Slot& slot = directory_.slot(i);
    const std::string name = "slot " + std::to_string(i) + ", once of pid " + std::to_string(slot.pid.load());
    if (directory_.occupied(i)) {
      found.insert(slot.pid.load());
      folders.insert(slot_folder(node_, i, slot.generation.load()));
      if (living.count(slot.pid.load()) == 0) return name + ": held";
      continue;
    }
    if (slot.state.load() != SlotState::kFree) return name + ": not freed";
    for (uint32_t h = 0; h < kHazardsPerSlot; ++h)
      if (directory_.hazard(i, h).target.load() != 0) return name + ": a hazard record is left";
  }
  if (found != living) return "a living process has no slot";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(node_ + "/slots", error))
    if (folders.erase(entry.path()) == 0) return entry.path().filename().string() + ": folder of nobody";
  return folders.empty() ? "" : "a living process has no folder";
}

bool NodeCheck::has_qpn(uint32_t qpn) const {
  QpnEntry entry;
  return directory_.find_qpn(qpn, &entry);
}

}  // namespace verbena::crash
