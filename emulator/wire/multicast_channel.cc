// SPDX-License-Identifier: BSD-2-Clause
//
// Offsets and (sizes) of a message in bytes: magic 0 (4), version 4 (4), sender's node 8 (8), slot 16 (4),
// generation 20 (4), number 24 (8), proof 32 (32), then the payload. The proof is HMAC-SHA-256(key, label,
// the first 32 bytes, the payload).
#include "wire/multicast_channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "fabric/fork_descriptors.h"
#include "fabric/node_membership.h"
#include "wire/bytes.h"
#include "wire/handshake.h"
#include "wire/ip_group.h"
#include "wire/key.h"
#include "wire/sha256.h"

namespace verbena::wire {
namespace {

constexpr uint32_t kMagic = 0x54434d56;  // "VMCT"
constexpr size_t kSigned = 32, kHead = kSigned + sizeof(Digest);
constexpr size_t kMostSenders = 1024;
constexpr uint64_t kWindow = 64;
constexpr int kHops = 1;  // the subnet
constexpr std::string_view kLabel = "verbena multicast";

// The fabric's group: RFC 2365, 6.2; RFC 4291, 2.7, transient and organisation-local.
NetAddress group_of(bool ipv4, uint16_t port) {
  const auto high = static_cast<uint8_t>(port >> 8), low = static_cast<uint8_t>(port);
  if (ipv4) return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 192, high, low}};
  return {{0xff, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'v', 'm', high, low}};
}

Digest proof(const NetworkKey& key, const uint8_t* head, std::span<const uint8_t> message) {
  return hmac_sha256(
      key, {{reinterpret_cast<const uint8_t*>(kLabel.data()), kLabel.size()}, {head, kSigned}, message});
}

int new_socket(bool ipv4) {
  const int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) keep_from_children(fd);
  return fd;
}

void close_kept(int fd) {
  no_longer_keep(fd);
  close(fd);
}

int open_sender(const NetAddress& from) {
  const int fd = new_socket(from.is_ipv4());
  if (fd < 0) return -1;
  sockaddr_storage where;
  const socklen_t size = from.to_socket_address(0, &where);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&where), size) == 0 &&
      send_to_ip_groups_from(fd, from, kHops) == 0)
    return fd;
  close_kept(fd);
  return -1;
}

}  // namespace

MulticastChannel::~MulticastChannel() {
  for (const Sender& sender : senders_)
    if (sender.fd >= 0) close_kept(sender.fd);
  for (const int fd : fds_) {
    if (fd < 0) continue;
    membership_->unwatch(fd);
    close_kept(fd);
  }
}

int MulticastChannel::open(NodeMembership& membership) {
  const NetworkDescription& network = membership.directory().devices().network;
  membership_ = &membership;
  self_ = {membership.directory().header().node_id, membership.slot(), membership.generation()};
  port_ = static_cast<uint16_t>(network.port);
  for (uint32_t i = 0; i < std::min(network.count, kMaxGids) && has_key(network); ++i)
    senders_.push_back({NetAddress{network.addresses[i]}, -1});
  if (senders_.empty()) return ENONET;
  return node_key(membership.node(), &key_);
}

int MulticastChannel::listen() {
  if (listens()) return 0;
  const std::lock_guard lock(mutex_);
  if (listens()) return 0;
  int error = ENONET;
  bool any = false;
  for (const bool ipv4 : {true, false}) {
    const bool has = std::any_of(senders_.begin(), senders_.end(),
                                 [&](const Sender& s) { return s.address.is_ipv4() == ipv4; });
    if (!has) continue;
    error = listen_to(ipv4);
    any |= error == 0;
  }
  if (!any) return error;
  listening_.store(true, std::memory_order_release);
  return 0;
}

// Under mutex_. Joins the group of one family on every interface that has an address of the node.
int MulticastChannel::listen_to(bool ipv4) {
  const int fd = new_socket(ipv4);
  if (fd < 0) return errno;
  const int on = 1, off = 0, room = 4 << 20;
  const NetAddress group = group_of(ipv4, port_);
  sockaddr_storage where;
  const socklen_t size = group.to_socket_address(port_, &where);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (ipv4)
    setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off);
  else
    setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &off, sizeof off);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  bool joined = false;
  int error = bind(fd, reinterpret_cast<const sockaddr*>(&where), size) == 0 ? 0 : errno;
  // Two addresses of one interface: already joined.
  for (const Sender& sender : senders_)
    if (error == 0 && sender.address.is_ipv4() == ipv4 && join_ip_group(fd, sender.address, group) == 0)
      joined = true;
  if (error == 0 && !joined) error = errno;
  if (error == 0) error = membership_->watch(fd);
  if (error != 0) {
    close_kept(fd);
    return error;
  }
  fds_[ipv4 ? 0 : 1] = fd;
  return 0;
}

// Under mutex_. The sender for messages of one family; nullptr: the node has no address of it.
MulticastChannel::Sender* MulticastChannel::sender_of(bool ipv4, const NetAddress& from) {
  Sender* found = nullptr;
  for (Sender& sender : senders_)
    if (sender.address.is_ipv4() == ipv4 && (found == nullptr || sender.address == from)) found = &sender;
  return found;
}

void MulticastChannel::send(const NetAddress& from, std::span<const uint8_t> message) {
  if (message.size() > kMaxMulticastMessage) return;
  uint8_t head[kHead];
  put32(head, kMagic);
  put32(head + 4, kProtocolVersion);
  put64(head + 8, self_.node);
  put32(head + 16, self_.slot);
  put32(head + 20, self_.generation);
  const std::lock_guard lock(mutex_);  // numbers leave in their order
  if (senders_.empty()) return;
  put64(head + 24, next_number_++);
  const Digest digest = proof(key_, head, message);
  std::copy(digest.begin(), digest.end(), head + kSigned);
  iovec parts[] = {{head, sizeof head}, {const_cast<uint8_t*>(message.data()), message.size()}};
  // Some nodes have addresses of one family only. A receiver of both takes one of the two copies.
  for (const bool ipv4 : {true, false}) {
    Sender* const sender = sender_of(ipv4, from);
    if (sender == nullptr) continue;
    if (sender->fd < 0) sender->fd = open_sender(sender->address);
    sockaddr_storage where;
    msghdr all{};
    all.msg_namelen = group_of(ipv4, port_).to_socket_address(port_, &where);
    all.msg_name = &where;
    all.msg_iov = parts;
    all.msg_iovlen = 2;
    [[maybe_unused]] const ssize_t sent = sendmsg(sender->fd, &all, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

// A number may overtake another by less than kWindow.
bool MulticastChannel::is_new(const ProcessId& sender, uint64_t number) {
  if (known_.size() >= kMostSenders && known_.count(sender) == 0) known_.erase(known_.begin());
  Known& known = known_[sender];
  if (number > known.last) {
    const uint64_t ahead = number - known.last;
    known.seen = (ahead < kWindow ? known.seen << ahead : 0) | 1;
    known.last = number;
    return true;
  }
  const uint64_t behind = known.last - number;
  if (behind >= kWindow || (known.seen >> behind & 1) != 0) return false;
  known.seen |= uint64_t{1} << behind;
  return true;
}

size_t MulticastChannel::receive(std::array<uint8_t, kMaxMulticastMessage>* message) {
  if (!listens()) return 0;
  for (const int fd : fds_)
    if (const size_t size = fd >= 0 ? receive_from(fd, message) : 0; size != 0) return size;
  return 0;
}

size_t MulticastChannel::receive_from(int fd, std::array<uint8_t, kMaxMulticastMessage>* message) {
  for (;;) {
    uint8_t head[kHead];
    iovec parts[] = {{head, sizeof head}, {message->data(), message->size()}};
    msghdr all{};
    all.msg_iov = parts;
    all.msg_iovlen = 2;
    const ssize_t got = recvmsg(fd, &all, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return 0;
    if (static_cast<size_t>(got) <= kHead || (all.msg_flags & MSG_TRUNC) != 0) continue;
    const size_t size = static_cast<size_t>(got) - kHead;
    const ProcessId sender{get64(head + 8), get32(head + 16), get32(head + 20)};
    if (get32(head) != kMagic || get32(head + 4) != kProtocolVersion || sender.node == self_.node) continue;
    Digest said;
    std::copy_n(head + kSigned, said.size(), said.begin());
    const std::span<const uint8_t> bytes(message->data(), size);
    if (equal_in_constant_time(said, proof(key_, head, bytes)) && is_new(sender, get64(head + 24)))
      return size;
  }
}

}  // namespace verbena::wire
