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

int refresh_counter(const std::string& node, std::string_view path) {
  // Its last components: <name>, ports, <port>, hw_counters, <counter>.
  std::string_view parts[5];
  for (size_t i = std::size(parts); i-- > 0;) {
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) return ENOENT;
    parts[i] = path.substr(slash + 1);
    path = path.substr(0, slash);
  }
  if (parts[1] != "ports" || parts[3] != "hw_counters") return ENOENT;
  const auto counter = std::find(kHwCounterNames.begin(), kHwCounterNames.end(), parts[4]);
  if (counter == kHwCounterNames.end()) return ENOENT;
  const NodeSnapshot snapshot = look_at_objects(node);
  for (uint32_t i = 0; i < std::min(snapshot.devices.count, kMaxDevices); ++i) {
    const DeviceDescription& device = snapshot.devices.devices[i];
    if (parts[0] != printable(device.name.data(), device.name.size())) continue;
    const auto index = static_cast<size_t>(counter - kHwCounterNames.begin());
    const uint32_t port = parts[2] == "1" ? 1 : parts[2] == "2" ? 2 : 0;
    if (port == 0 || port > device.count_ports()) return ENOENT;
    return show_counter(node, device, port, *counter, hw_counters(snapshot, i, port)[index]);
  }
  return ENOENT;
}

}  // namespace verbena
