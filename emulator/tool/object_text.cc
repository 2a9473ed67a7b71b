// SPDX-License-Identifier: BSD-2-Clause
#include "tool/object_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::tool {

std::string device_name(const NodeSnapshot& node, uint32_t index) {
  return index < std::min(node.devices.count, kMaxDevices) ? node.devices.devices[index].name.data()
                                                           : std::to_string(index);
}

std::string qpn_text(uint32_t qpn) { return fmt::format("{:#08x}", qpn); }

std::string peer_text(const PeerSnapshot& peer) {
  if (peer.qpn == 0) return "-";
  if (!peer.address.empty()) return fmt::format("{} at {}", qpn_text(peer.qpn), peer.address);
  if (peer.pid == 0) return qpn_text(peer.qpn) + " of a process that is gone";
  return fmt::format("{} of {} ({})", qpn_text(peer.qpn), peer.pid, peer.program);
}

}  // namespace verbena::tool
