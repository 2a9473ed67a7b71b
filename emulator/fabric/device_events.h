// SPDX-License-Identifier: BSD-2-Clause
//
// What happens to a device as a whole, and is told to every process that has it open: its port goes down or
// comes up, its GIDs or its interface's address change, it fails. Each device has a log of these in the node
// directory. Whoever makes something happen (`verbena event`) or sees it (addresses of the machine) appends
// under a file lock and kicks the processes of the node; each process reads on from where it was
// (engine/device/device_events.cc). A process that is stopped meanwhile reads later.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace verbena {

class NodeDirectory;

// Beside those of ibv_event_type: the device's interface has another hardware address, as a bond after a failover.
// Verbs see IBV_EVENT_GID_CHANGE (roce_gid_mgmt.c: its GIDs are taken out and put in again), the connection manager's
// ids RDMA_CM_EVENT_ADDR_CHANGE (cma.c: cma_netdev_callback).
inline constexpr auto kAddressChange = static_cast<ibv_event_type>(30);

// Written under the directory's lock, read by anybody.
struct alignas(64) DeviceEventLog {
  static constexpr uint32_t kLength = 56;  // events that a slow reader may be behind
  std::atomic<uint64_t> word;              // number of events so far (63 bits) | the port is down (1 bit)
  std::atomic<uint8_t> types[kLength];     // enum ibv_event_type or kAddressChange; event n at n % kLength

  uint64_t count() const { return word.load(std::memory_order_acquire) >> 1; }
  bool port_down() const { return (word.load(std::memory_order_acquire) & 1) != 0; }
};
static_assert(sizeof(DeviceEventLog) == 64);

// Appends `type` (PORT_ERR, PORT_ACTIVE, GID_CHANGE, DEVICE_FATAL or kAddressChange) to the log of `device` <
// devices().count, lets the state of the port follow, and kicks everybody on the node. *told: to how many
// processes. 0; EALREADY: the port is in that state already, nothing happened; ETIMEDOUT: another process has
// held the lock for 10 seconds; or what the file system says.
int raise_device_event(const NodeDirectory& directory, const std::string& node, uint32_t device,
                       ibv_event_type type, uint32_t* told);

// Does the machine have the address, as in a GID? Called under the lock.
using HasAddress = bool (*)(const std::array<uint8_t, 16>& address);

// Looks at the addresses by which other nodes reach this one. If one has come or gone since anybody of the
// node looked last: GID_CHANGE to all devices, as a kernel's (roce_gid_mgmt.c). When none is left PORT_ERR
// follows it, as for an interface that is down, and PORT_ACTIVE when one is back. An event may come twice if
// a process dies in between. 0; ETIMEDOUT at once: somebody else has the lock, come again; or what the file
// system says.
int follow_addresses(const NodeDirectory& directory, const std::string& node, HasAddress has_address);

// How many events all devices of the node have had so far.
uint64_t count_device_events(const NodeDirectory& directory);

}  // namespace verbena
