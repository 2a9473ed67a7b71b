// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/delayed_packets.h"

#include <algorithm>
#include <iterator>

namespace verbena {

bool DelayedPackets::keep(const wire::NetAddress& to, const udp::IpFields& fields, uint32_t socket,
                          std::span<const uint8_t> bytes, int64_t until) {
  std::lock_guard lock(mutex_);
  if (packets_.size() == kMost) return false;
  packets_.push_back({to, fields, socket, until, {bytes.begin(), bytes.end()}});
  return true;
}

std::vector<DelayedPackets::Packet> DelayedPackets::take_due(int64_t now) {
  std::lock_guard lock(mutex_);
  const auto due = std::stable_partition(packets_.begin(), packets_.end(),
                                         [now](const Packet& packet) { return packet.until > now; });
  std::vector<Packet> taken(std::make_move_iterator(due), std::make_move_iterator(packets_.end()));
  packets_.erase(due, packets_.end());
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Packet& a, const Packet& b) { return a.until < b.until; });
  return taken;
}

}  // namespace verbena
