// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/packet_inboxes.h"

#include <errno.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace verbena {

// False: the connection has ended.
bool PacketInboxes::look(Inbox& inbox) {
  ForwardedPacket way;
  std::array<uint8_t, sizeof way> head;
  const ssize_t size = inbox.connection.peek(head);
  inbox.looked_at = found_;
  if (size == -EAGAIN) return true;
  if (size < static_cast<ssize_t>(sizeof way)) return false;
  std::memcpy(&way, head.data(), sizeof way);
  inbox.has_packet = true;
  inbox.read_at = way.read_at;
  ++found_;
  return true;
}

// Until each inbox has a packet, or has been empty after the last packet was found.
void PacketInboxes::look_at_all() {
  const auto is_due = [&](const Inbox& each) { return !each.has_packet && each.looked_at != found_; };
  while (std::any_of(inboxes_.begin(), inboxes_.end(), is_due))
    std::erase_if(inboxes_, [&](Inbox& each) { return is_due(each) && !look(each); });
}

PacketInboxes::Taken PacketInboxes::take_from(Inbox& inbox, const Take& take) {
  std::array<uint8_t, kForwardedBytes> message;
  const ssize_t size = inbox.connection.receive(message);
  inbox.has_packet = false;
  inbox.looked_at = 0;
  if (size == -EAGAIN) return Taken::kNothing;
  ForwardedPacket way;
  if (size < static_cast<ssize_t>(sizeof way) || size > static_cast<ssize_t>(message.size()))
    return Taken::kEnd;
  std::memcpy(&way, message.data(), sizeof way);
  take(way, std::span<const uint8_t>(message).first(static_cast<size_t>(size)).subspan(sizeof way));
  return Taken::kPacket;
}

// There is no order to keep: no need to look before.
bool PacketInboxes::read_only_inbox(int most, const Take& take) {
  for (int i = 0; i < most; ++i) {
    const Taken taken = take_from(inboxes_[0], take);
    if (taken == Taken::kEnd) inboxes_.clear();
    if (taken != Taken::kPacket) return true;
  }
  return false;
}

bool PacketInboxes::read(int most, const Take& take) {
  if (inboxes_.size() == 1) return read_only_inbox(most, take);
  for (int i = 0; i < most; ++i) {
    look_at_all();
    const auto first = std::min_element(inboxes_.begin(), inboxes_.end(), [](const Inbox& a, const Inbox& b) {
      return a.has_packet != b.has_packet ? a.has_packet : a.has_packet && a.read_at < b.read_at;
    });
    if (first == inboxes_.end() || !first->has_packet) {
      for (Inbox& each : inboxes_) each.looked_at = 0;  // the next call looks again
      return true;
    }
    if (take_from(*first, take) == Taken::kEnd) inboxes_.erase(first);
  }
  return false;
}

}  // namespace verbena
