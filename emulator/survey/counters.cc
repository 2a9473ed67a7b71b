// SPDX-License-Identifier: BSD-2-Clause
#include "survey/counters.h"

#include <errno.h>

#include <algorithm>
#include <iterator>

#include "fabric/device_tree.h"

namespace verbena {

HwCounters hw_counters(const NodeSnapshot& node, uint32_t device, uint32_t port) {
  HwCounters sum{};
  if (device >= kMaxDevices) return sum;
  const uint32_t place = port_place(device, port);
  std::copy(node.past[place].begin(), node.past[place].end(), sum.begin());
  const auto add = [&](HwCounter counter, uint64_t value) { sum[static_cast<size_t>(counter)] += value; };
  for (const ProcessSnapshot& process : node.processes) {
    for (const QpSnapshot& qp : process.qps) {
      if (qp.device != device || std::max(qp.port, 1u) != port) continue;
      add(HwCounter::kSentRequests, qp.requests_out);
      add(HwCounter::kSentBytes, qp.bytes_out);
      add(HwCounter::kReceivedRequests, qp.requests_in);
      add(HwCounter::kReceivedBytes, qp.bytes_in);
      add(HwCounter::kReceivedRnrNaks, qp.rnr_naks);
      add(HwCounter::kRetries, qp.retries);
      add(HwCounter::kDropped, qp.dropped);
      add(HwCounter::kLost, qp.lost);
    }
  }
  add(HwCounter::kQkeyViolations, node.qkey_violations[place]);
  add(HwCounter::kStrays, node.stray_datagrams[place]);
  return sum;
}

PmaCounters pma_counters(const NodeSnapshot& node, uint32_t device, uint32_t port) {
  PmaCounters out{};
  if (device >= kMaxDevices) return out;
  PortCountValues sum = node.port_counts[port_place(device, port)];
  for (const ProcessSnapshot& process : node.processes)
    for (const QpSnapshot& qp : process.qps)
      for (size_t i = 0; i < sum.size() && qp.device == device && std::max(qp.port, 1u) == port; ++i)
        sum[i] += qp.traffic[i];
  const auto count = [&](PortCount which) { return sum[static_cast<size_t>(which)]; };
  const auto put = [&](PmaCounter counter, uint64_t value) { out[static_cast<size_t>(counter)] = value; };
  put(PmaCounter::kLinkDowned, count(PortCount::kLinkDowned));
  // The port that a damaged packet was sent to cannot be known.
  if (device == 0 && port == 1)
    put(PmaCounter::kReceiveErrors, node.packet_drops[static_cast<size_t>(PacketDrop::kDamaged)]);
  put(PmaCounter::kSendDiscards, hw_counters(node, device, port)[static_cast<size_t>(HwCounter::kLost)]);
  constexpr uint64_t kUnit = 4;  // octets
  put(PmaCounter::kSentData, count(PortCount::kSentOctets) / kUnit);
  put(PmaCounter::kReceivedData, count(PortCount::kReceivedOctets) / kUnit);
  put(PmaCounter::kSentPackets, count(PortCount::kSentUnicast) + count(PortCount::kSentMulticast));
  put(PmaCounter::kReceivedPackets,
      count(PortCount::kReceivedUnicast) + count(PortCount::kReceivedMulticast));
  put(PmaCounter::kUnicastSent, count(PortCount::kSentUnicast));
  put(PmaCounter::kUnicastReceived, count(PortCount::kReceivedUnicast));
  put(PmaCounter::kMulticastSent, count(PortCount::kSentMulticast));
  put(PmaCounter::kMulticastReceived, count(PortCount::kReceivedMulticast));
  return out;
}

namespace {

// The index of `name` in `names`; -1: it is none of them.
template <typename Names>
int index_of(const Names& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

}  // namespace

int refresh_counter(const std::string& node, std::string_view path) {
  // Its last components: <name>, ports, <port>, hw_counters or counters, <counter>.
  std::string_view parts[5];
  for (size_t i = std::size(parts); i-- > 0;) {
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) return ENOENT;
    parts[i] = path.substr(slash + 1);
    path = path.substr(0, slash);
  }
  if (parts[1] != "ports") return ENOENT;
  const bool is_pma = parts[3] == "counters";
  const int index = is_pma                      ? index_of(kPmaCounterNames, parts[4])
                    : parts[3] == "hw_counters" ? index_of(kHwCounterNames, parts[4])
                                                : -1;
  if (index < 0) return ENOENT;
  const NodeSnapshot snapshot = look_at_objects(node);
  for (uint32_t i = 0; i < std::min(snapshot.devices.count, kMaxDevices); ++i) {
    const DeviceDescription& device = snapshot.devices.devices[i];
    if (parts[0] != printable(device.name.data(), device.name.size())) continue;
    const uint32_t port = parts[2] == "1" ? 1 : parts[2] == "2" ? 2 : 0;
    if (port == 0 || port > device.count_ports()) return ENOENT;
    const auto at = static_cast<size_t>(index);
    const std::string name = std::string(parts[3]) + "/" + std::string(parts[4]);
    return show_counter(node, device, port, name,
                        is_pma ? pma_counters(snapshot, i, port)[at] : hw_counters(snapshot, i, port)[at]);
  }
  return ENOENT;
}

}  // namespace verbena
