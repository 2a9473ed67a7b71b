// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "cm/id_table.h"
#include "fabric/node_directory.h"
#include "survey/snapshot.h"

namespace verbena {
namespace {

ProcessSnapshot* find_process(NodeSnapshot* node, const cm::Owner& owner) {
  const auto found = std::find_if(node->processes.begin(), node->processes.end(), [&](const auto& process) {
    return process.slot == owner.slot && process.generation == owner.generation;
  });
  return found != node->processes.end() ? &*found : nullptr;
}

void find_peer(const NodeDirectory& directory, CmIdSnapshot* id) {
  if (id->facts.peer >= kMaxSlots || !directory.occupied(id->facts.peer)) return;
  const Slot& slot = directory.slot(id->facts.peer);
  id->peer_pid = slot.pid.load(std::memory_order_acquire);
  id->peer_program = printable(slot.program, sizeof slot.program);
}

}  // namespace

void look_at_cm(const NodeDirectory& directory, NodeSnapshot* node) {
  cm::IdTable table;
  const int error = table.open(directory, node->path, /*only_if_there=*/true);
  if (error == ENOENT) return;  // not used on this node yet
  if (error != 0) {
    node->cm_problem = error == EPROTO ? "its table was made by another version of Verbena, or is damaged"
                                       : std::strerror(error);
    return;
  }
  table.for_each_id([&](const cm::IdRecord& record) {
    ProcessSnapshot* process = find_process(node, record.owner);
    if (process == nullptr) return;
    CmIdSnapshot id;
    id.facts = record.facts;
    id.backlog = record.backlog;
    find_peer(directory, &id);
    process->cm_ids.push_back(std::move(id));
  });
  table.for_each_group([&](const cm::GroupRecord& record) {
    ProcessSnapshot* process = find_process(node, record.owner);
    cm::IdRecord id;
    if (process == nullptr || !table.read(record.id, &id)) return;
    process->cm_groups.push_back({id.facts.number, record.mgid, record.send_only});
  });
  for (ProcessSnapshot& process : node->processes)  // entries are reused: the table's order means nothing
    std::sort(process.cm_ids.begin(), process.cm_ids.end(),
              [](const auto& a, const auto& b) { return a.facts.number < b.facts.number; });
}

}  // namespace verbena
