// SPDX-License-Identifier: BSD-2-Clause
#include "udp/receive_batch.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "udp/send_control.h"

namespace verbena::udp {

ReceiveBatch::ReceiveBatch() : bytes_(new uint8_t[kDatagrams * kDatagramBytes]) {
  for (size_t i = 0; i < kDatagrams; ++i) {
    parts_[i] = {&bytes_[i * kDatagramBytes], kDatagramBytes};
    messages_[i] = {};
    msghdr& header = messages_[i].msg_hdr;
    header.msg_name = &names_[i];
    header.msg_iov = &parts_[i];
    header.msg_iovlen = 1;
    header.msg_control = control_[i].bytes;
  }
}

// recvmmsg(2) costs more than recvmsg(2) if there is nothing, or one datagram.
size_t ReceiveBatch::receive(int fd) {
  long received;
  do {
    received = wanted_ == 1 ? syscall(SYS_recvmsg, fd, &messages_[0].msg_hdr, MSG_DONTWAIT)
                            : syscall(SYS_recvmmsg, fd, messages_.data(), wanted_, MSG_DONTWAIT, nullptr);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return 0;
  if (wanted_ != 1) return static_cast<size_t>(received);
  messages_[0].msg_len = static_cast<unsigned>(received);
  return 1;
}

bool ReceiveBatch::fill(int fd) {
  for (size_t i = 0; i < wanted_; ++i) {
    messages_[i].msg_hdr.msg_namelen = sizeof names_[i];
    messages_[i].msg_hdr.msg_controllen = sizeof control_[i].bytes;
  }
  count_ = receive(fd);
  may_go_on_ = wanted_ > 1 && count_ == wanted_;
  wanted_ = count_ == wanted_ ? kDatagrams : 1;
  next_ = offset_ = 0;
  return count_ != 0;
}

// Of each control message at most 4 bytes count.
void ReceiveBatch::read_control(msghdr& header, size_t size) {
  packet_size_ = size;
  ip_ = {};
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    int value = 0;
    std::memcpy(&value, CMSG_DATA(each), std::min(sizeof value, each->cmsg_len - CMSG_LEN(0)));
    if (each->cmsg_level == IPPROTO_UDP) {
      if (each->cmsg_type == UDP_GRO && value > 0) packet_size_ = static_cast<size_t>(value);
    } else if (each->cmsg_level == IPPROTO_IP) {
      if (each->cmsg_type == IP_TOS) ip_.traffic_class = static_cast<uint8_t>(value);
      if (each->cmsg_type == IP_TTL) ip_.hop_limit = static_cast<uint8_t>(value);
    } else if (each->cmsg_level == IPPROTO_IPV6) {
      const uint32_t flow = ntohl(static_cast<uint32_t>(value));
      if (each->cmsg_type == kIpv6Flowinfo)
        ip_.traffic_class = static_cast<uint8_t>(flow >> 20), ip_.flow_label = flow & kFlowLabelMask;
      if (each->cmsg_type == IPV6_HOPLIMIT) ip_.hop_limit = static_cast<uint8_t>(value);
    }
  }
}

ReceiveBatch::Piece ReceiveBatch::next() {
  mmsghdr& message = messages_[next_];
  const uint8_t* const bytes = &bytes_[next_ * kDatagramBytes];
  if (offset_ == 0) {
    from_ = {};
    wire::NetAddress::from_socket_address(names_[next_], &from_.address);
    from_.port = ntohs(names_[next_].ss_family == AF_INET
                           ? reinterpret_cast<const sockaddr_in&>(names_[next_]).sin_port
                           : reinterpret_cast<const sockaddr_in6&>(names_[next_]).sin6_port);
    read_control(message.msg_hdr, message.msg_len);
  }
  const Piece piece{bytes + offset_, std::min(packet_size_, message.msg_len - offset_)};
  offset_ += piece.size;
  if (offset_ >= message.msg_len) ++next_, offset_ = 0;
  return piece;
}

}  // namespace verbena::udp
