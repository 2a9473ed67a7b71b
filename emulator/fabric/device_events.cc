// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_events.h"

#include <errno.h>

#include <algorithm>
#include <chrono>

#include "fabric/device_tree.h"
#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/node_lock.h"

namespace verbena {
namespace {

using namespace std::chrono_literals;

// ports_down repeats the logs in one word for requesters. Publishing it from the logs repairs it if a process
// died between the two.
void publish_ports(const NodeDirectory& directory) {
  uint32_t down = 0;
  for (uint32_t i = 0; i < directory.devices().count; ++i)
    for (uint32_t port = 1; port <= kMaxPorts; ++port)
      if (directory.events(i).port_down(port)) down |= port_bit(i, port);
  directory.header().ports_down.store(down, std::memory_order_release);
}

void kick_everybody(const NodeDirectory& directory, const std::string& node, uint32_t* told) {
  *told = 0;
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const Slot& slot = directory.slot(i);
    const uint32_t generation = slot.generation.load(std::memory_order_acquire);
    if (kick_slot(directory, node, i, generation)) ++*told;
  }
}

// The caller holds the lock. EALREADY: the port is in that state already; nothing happens.
int append(const NodeDirectory& directory, const std::string& node, uint32_t device, DeviceEvent event) {
  DeviceEventLog& log = directory.events(device);
  const ibv_event_type type = event.type;
  const uint32_t bit = 1u << (event.port - 1);
  const bool was_down = log.port_down(event.port);
  const bool is_down = type == IBV_EVENT_PORT_ERR || (was_down && type != IBV_EVENT_PORT_ACTIVE);
  const bool nothing_new =
      (type == IBV_EVENT_PORT_ERR && was_down) || (type == IBV_EVENT_PORT_ACTIVE && !was_down);
  if (!nothing_new) {
    const uint64_t number = log.count();
    log.events[number % DeviceEventLog::kLength].store(event.pack(), std::memory_order_relaxed);
    const uint32_t down = is_down ? log.ports_down() | bit : log.ports_down() & ~bit;
    log.word.store((number + 1) << 2 | down, std::memory_order_release);
    if (type == IBV_EVENT_PORT_ERR)
      directory.header()
          .port_counts[port_place(device, event.port)][static_cast<size_t>(PortCount::kLinkDowned)]
          .fetch_add(1, std::memory_order_relaxed);
  }
  publish_ports(directory);
  // A cleaner of old files may have deleted the tree: it is made again in the right state.
  if (const int error = show_port_state(node, directory.devices().devices[device], event.port, is_down);
      error != 0 && error != ENOENT)
    return error;
  return nothing_new ? EALREADY : 0;
}

// 127.0.0.1 and ::1 always mean the node itself: no other node reaches it by those addresses.
bool reaches_others(const std::array<uint8_t, 16>& address) {
  constexpr std::array<uint8_t, 16> kLoopbacks[] = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1},
                                                    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return address != kLoopbacks[0] && address != kLoopbacks[1];
}

}  // namespace

uint64_t count_device_events(const NodeDirectory& directory) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < directory.devices().count; ++i) count += directory.events(i).count();
  return count;
}

int raise_device_event(const NodeDirectory& directory, const std::string& node, uint32_t device,
                       ibv_event_type type, uint32_t* told, uint32_t port) {
  const TableLock lock(directory, NodeTable::kEvents, kLockPatience);
  if (lock.error() != 0) return lock.error();
  const int error = append(directory, node, device, {type, port});
  if (error != 0 && error != EALREADY) return error;
  kick_everybody(directory, node, told);
  return error;
}

int follow_addresses(const NodeDirectory& directory, const std::string& node, HasAddress has_address) {
  const TableLock lock(directory, NodeTable::kEvents, 0ms);
  if (lock.error() != 0) return lock.error();
  DirectoryHeader& header = directory.header();
  const NetworkDescription& network = directory.devices().network;
  uint32_t gone = 0, used = 0;
  for (uint32_t i = 0; i < std::min(network.count, kMaxGids); ++i) {
    if (!reaches_others(network.addresses[i])) continue;
    used |= 1u << i;
    if (!has_address(network.addresses[i])) gone |= 1u << i;
  }
  if (gone == header.addresses_gone.load(std::memory_order_relaxed)) return 0;
  const auto tell = [&](uint32_t device, ibv_event_type type) {
    const uint32_t ports = directory.devices().devices[device].count_ports();
    for (uint32_t port = 1; port <= ports; ++port) {
      const int error = append(directory, node, device, {type, port});
      if (error != 0 && error != EALREADY) return error;
    }
    return 0;
  };
  int error = 0;
  for (uint32_t i = 0; i < directory.devices().count && error == 0; ++i) {
    error = tell(i, IBV_EVENT_GID_CHANGE);
    if (error != 0) break;
    const uint32_t lowered = header.ports_lowered.load(std::memory_order_relaxed), bit = 1u << i;
    if (gone == used && directory.events(i).ports_down() == 0) {
      header.ports_lowered.store(lowered | bit, std::memory_order_relaxed);
      error = tell(i, IBV_EVENT_PORT_ERR);
    } else if (gone != used && (lowered & bit) != 0) {
      error = tell(i, IBV_EVENT_PORT_ACTIVE);
      if (error == 0) header.ports_lowered.store(lowered & ~bit, std::memory_order_relaxed);
    }
  }
  if (error == 0) header.addresses_gone.store(gone, std::memory_order_relaxed);
  uint32_t told = 0;
  kick_everybody(directory, node, &told);
  return error;
}

}  // namespace verbena
