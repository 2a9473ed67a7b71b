// SPDX-License-Identifier: BSD-2-Clause
//
// Events of a device as a whole, reported to every process that has the device open:
// - its port goes down or comes up,
// - its GIDs or its interface's address change,
// - it fails.
//
// Each device has a log of these events in the node directory. A process that causes an event (`verbena
// event`) or detects one (the machine's addresses) appends it under a lock (node_lock.h) and kicks the
// processes of the node. Each process reads on from its own position (engine/device/device_events.cc). A
// process that is stopped meanwhile reads later.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace verbena {

class NodeDirectory;

// In addition to ibv_event_type: the device's interface has another hardware address, as a bond has after a
// failover. Verbs see IBV_EVENT_GID_CHANGE (roce_gid_mgmt.c: the GIDs are removed and added again). The
// connection manager's ids see RDMA_CM_EVENT_ADDR_CHANGE (cma.c: cma_netdev_callback).
inline constexpr auto kAddressChange = static_cast<ibv_event_type>(30);

struct DeviceEvent {
  ibv_event_type type;  // or kAddressChange
  uint32_t port;        // 1 or 2; of an event of the device as a whole: 1
  static constexpr uint8_t kPort2 = 0x80;
  static constexpr DeviceEvent unpack(uint8_t byte) {
    return {static_cast<ibv_event_type>(byte & 0x7f), (byte & kPort2) != 0 ? 2u : 1u};
  }
  constexpr uint8_t pack() const {
    return static_cast<uint8_t>(static_cast<unsigned>(type) | (port == 2 ? kPort2 : 0u));
  }
};

// Written under the directory's lock; any process reads it.
struct alignas(64) DeviceEventLog {
  static constexpr uint32_t kLength = 56;  // events that a slow reader may be behind
  std::atomic<uint64_t> word;              // number of events so far (62 bits) | bit p - 1: port p is down
  std::atomic<uint8_t> events[kLength];    // DeviceEvent; event n at n % kLength

  uint64_t count() const { return word.load(std::memory_order_acquire) >> 2; }
  uint32_t ports_down() const { return static_cast<uint32_t>(word.load(std::memory_order_acquire) & 3); }
  bool port_down(uint32_t port = 1) const { return (ports_down() >> (port - 1) & 1) != 0; }
  DeviceEvent event(uint64_t number) const {
    return DeviceEvent::unpack(events[number % kLength].load(std::memory_order_relaxed));
  }
};
static_assert(sizeof(DeviceEventLog) == 64);

// Appends `type` (PORT_ERR, PORT_ACTIVE, GID_CHANGE, DEVICE_FATAL or kAddressChange) to the log of `device` <
// devices().count, sets the state of `port` accordingly, and kicks all processes of the node. *told: the
// number of processes kicked.
// - 0: done.
// - EALREADY: the port is in that state already; nothing happens.
// - ETIMEDOUT: another process has held the lock for 10 seconds.
// - Other errno: an error of the file system.
int raise_device_event(const NodeDirectory& directory, const std::string& node, uint32_t device,
                       ibv_event_type type, uint32_t* told, uint32_t port = 1);

// True: the machine has the address, given as in a GID. Called under the lock.
using HasAddress = bool (*)(const std::array<uint8_t, 16>& address);

// Checks the addresses by which other nodes reach this one.
// - An address has come or gone since any process of the node looked last: GID_CHANGE to all ports, as from
//   a kernel (roce_gid_mgmt.c).
// - No address is left: PORT_ERR of all ports follows, as for an interface that is down.
// - An address is back: PORT_ACTIVE of all ports follows.
// An event may come twice if a process dies in between. Returns 0; ETIMEDOUT at once if another process holds
// the lock (call again later); or an error of the file system.
int follow_addresses(const NodeDirectory& directory, const std::string& node, HasAddress has_address);

// The number of events that all devices of the node have had so far.
uint64_t count_device_events(const NodeDirectory& directory);

}  // namespace verbena
