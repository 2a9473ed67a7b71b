// SPDX-License-Identifier: BSD-2-Clause
//
// The control messages of one datagram that is sent (cmsg(3)): what is not the socket's own.
#pragma once

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "udp/ip_fields.h"

namespace verbena::udp {

// ipv6(7), <linux/in6.h>; not in <netinet/in.h>.
inline constexpr int kIpv6Flowinfo = 11;
inline constexpr uint32_t kFlowLabelMask = 0xfffff;

class SendControl {
 public:
  // The fields of the IP header. `usual`: the socket's own traffic class.
  void add(const IpFields& fields, uint8_t usual, bool is_ipv4) {
    if (fields.traffic_class != usual)
      add(is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_TOS : IPV6_TCLASS, int{fields.traffic_class});
    if (fields.hop_limit != 0)
      add(is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_TTL : IPV6_HOPLIMIT, int{fields.hop_limit});
    if (const uint32_t label = fields.flow_label & kFlowLabelMask; label != 0 && !is_ipv4)
      add(IPPROTO_IPV6, kIpv6Flowinfo, htonl(label));
  }
  // The kernel divides it into datagrams of `size` bytes.
  void add_segment_size(uint16_t size) { add(IPPROTO_UDP, UDP_SEGMENT, size); }

  // The header refers to this object.
  void put(msghdr* header) {
    if (used_ == 0) return;
    header->msg_control = bytes_;
    header->msg_controllen = used_;
  }

 private:
  template <typename T>
  void add(int level, int type, T value) {
    cmsghdr head{};
    head.cmsg_level = level;
    head.cmsg_type = type;
    head.cmsg_len = CMSG_LEN(sizeof value);
    std::memset(&bytes_[used_], 0, CMSG_SPACE(sizeof value));
    std::memcpy(&bytes_[used_], &head, sizeof head);
    std::memcpy(&bytes_[used_ + CMSG_LEN(0)], &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
  }

  alignas(cmsghdr) uint8_t bytes_[3 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))];
  size_t used_ = 0;
};

}  // namespace verbena::udp
