// SPDX-License-Identifier: BSD-2-Clause
//
// The counters in /sys/class/infiniband/<name>/ports/<port>/counters: PortCounters and PortCountersExtended
// of InfiniBand's performance management (vol. 1, 16.1.3.5 and 16.1.4.11), by the names of
// drivers/infiniband/core/sysfs.c, pma_attrs_ext[]; Documentation/ABI/stable/sysfs-class-infiniband. All
// start with the node and only rise.
//
// Queue pairs count what they send and receive (adapter/traffic.h). The node directory keeps the counts of
// the destroyed ones (DirectoryHeader::port_counts), and has the rest at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena {

enum class PmaCounter : uint32_t {
  kSymbolError,
  kLinkErrorRecovery,
  kLinkDowned,
  kReceiveErrors,
  kRemotePhysicalErrors,
  kSwitchRelayErrors,
  kSendDiscards,
  kSendConstraintErrors,
  kReceiveConstraintErrors,
  kLocalLinkIntegrityErrors,
  kExcessiveBufferOverrunErrors,
  kVl15Dropped,
  kSentData,
  kReceivedData,
  kSentPackets,
  kReceivedPackets,
  kSendWait,
  kUnicastReceived,
  kUnicastSent,
  kMulticastReceived,
  kMulticastSent,
  kCounters
};
inline constexpr size_t kPmaCounters = static_cast<size_t>(PmaCounter::kCounters);

inline constexpr std::array<const char*, kPmaCounters> kPmaCounterNames = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "port_xmit_wait",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
};

using PmaCounters = std::array<uint64_t, kPmaCounters>;

}  // namespace verbena
