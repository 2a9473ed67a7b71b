// SPDX-License-Identifier: BSD-2-Clause
#include "udp/receive_batch.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace verbena::udp {

ReceiveBatch::ReceiveBatch() : bytes_(new uint8_t[kDatagrams * kDatagramBytes]) {
  for (size_t i = 0; i < kDatagrams; ++i) parts_[i] = {&bytes_[i * kDatagramBytes], kDatagramBytes};
}

bool ReceiveBatch::fill(int fd) {
  for (size_t i = 0; i < kDatagrams; ++i) {
    messages_[i] = {};
    msghdr& header = messages_[i].msg_hdr;
    header.msg_name = &names_[i];
    header.msg_namelen = sizeof names_[i];
    header.msg_iov = &parts_[i];
    header.msg_iovlen = 1;
    header.msg_control = control_[i].bytes;
    header.msg_controllen = sizeof control_[i].bytes;
  }
  long received;
  do {
    received = syscall(SYS_recvmmsg, fd, messages_.data(), kDatagrams, MSG_DONTWAIT, nullptr);
  } while (received < 0 && errno == EINTR);
  count_ = received > 0 ? static_cast<size_t>(received) : 0;
  next_ = offset_ = 0;
  return count_ != 0;
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
    packet_size_ = message.msg_len;
    int tos = 0;
    for (cmsghdr* each = CMSG_FIRSTHDR(&message.msg_hdr); each != nullptr;
         each = CMSG_NXTHDR(&message.msg_hdr, each)) {
      int value = 0;
      std::memcpy(&value, CMSG_DATA(each), std::min(sizeof value, each->cmsg_len - CMSG_LEN(0)));
      if (each->cmsg_level == IPPROTO_UDP && each->cmsg_type == UDP_GRO && value > 0)
        packet_size_ = static_cast<size_t>(value);
      else if ((each->cmsg_level == IPPROTO_IP && each->cmsg_type == IP_TOS) ||
               (each->cmsg_level == IPPROTO_IPV6 && each->cmsg_type == IPV6_TCLASS))
        tos = value;
    }
    is_congested_ = (tos & IPTOS_ECN_MASK) == IPTOS_ECN_CE;
  }
  const Piece piece{bytes + offset_, std::min(packet_size_, message.msg_len - offset_), is_congested_};
  offset_ += piece.size;
  if (offset_ >= message.msg_len) ++next_, offset_ = 0;
  return piece;
}

}  // namespace verbena::udp
