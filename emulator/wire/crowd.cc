// SPDX-License-Identifier: BSD-2-Clause
//
// A message: magic 0 (4), version 4 (4), sender's node 8 (8), slot 16 (4), generation 20 (4), number 24 (8),
// proof 32 (32), then what is said. The proof is HMAC-SHA-256(key, label, the first 32 bytes, what is said).
#include "wire/crowd.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "fabric/descriptors_of_parent.h"
#include "fabric/residence.h"
#include "wire/bytes.h"
#include "wire/handshake.h"
#include "wire/key.h"
#include "wire/sha256.h"

namespace verbena::wire {
namespace {

constexpr uint32_t kMagic = 0x54434d56;  // "VMCT"
constexpr size_t kSigned = 32, kHead = kSigned + sizeof(Digest);
constexpr size_t kMostSenders = 1024;
constexpr uint64_t kWindow = 64;
constexpr std::string_view kLabel = "verbena multicast";

in_addr group_of(uint16_t port) { return {htonl(0xefc00000u | port)}; }

in_addr host_of(const NetAddress& address) {
  in_addr host;
  std::memcpy(&host, &address.bytes[12], sizeof host);
  return host;
}

Digest proof(const NetworkKey& key, const uint8_t* head, std::span<const uint8_t> message) {
  return hmac_sha256(
      key, {{reinterpret_cast<const uint8_t*>(kLabel.data()), kLabel.size()}, {head, kSigned}, message});
}

int new_socket() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) keep_from_children(fd);
  return fd;
}

void close_kept(int fd) {
  no_longer_keep(fd);
  close(fd);
}

int open_sender(const NetAddress& from) {
  const int fd = new_socket();
  if (fd < 0) return -1;
  sockaddr_storage where;
  const socklen_t size = from.to_socket_address(0, &where);
  const in_addr interface = host_of(from);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&where), size) == 0 &&
      setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) == 0)
    return fd;
  close_kept(fd);
  return -1;
}

}  // namespace

Crowd::~Crowd() {
  for (const Sender& sender : senders_)
    if (sender.fd >= 0) close_kept(sender.fd);
  if (fd_ < 0) return;
  home_->unwatch(fd_);
  close_kept(fd_);
}

int Crowd::open(Residence& home) {
  const NetworkDescription& network = home.directory().devices().network;
  home_ = &home;
  self_ = {home.directory().header().node_id, home.slot(), home.generation()};
  port_ = static_cast<uint16_t>(network.port);
  for (uint32_t i = 0; i < std::min(network.count, kMaxGids) && network.enabled != 0; ++i)
    if (const NetAddress address{network.addresses[i]}; address.is_ipv4()) senders_.push_back({address, -1});
  if (senders_.empty()) return ENONET;
  return node_key(home.node(), &key_);
}

int Crowd::listen() {
  if (listens()) return 0;
  const std::lock_guard lock(mutex_);
  if (senders_.empty() || fd_ >= 0) return fd_ >= 0 ? 0 : ENONET;
  const int fd = new_socket();
  if (fd < 0) return errno;
  const int on = 1, off = 0, room = 4 << 20;
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port_);
  where.sin_addr = group_of(port_);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  bool joined = false;
  int error = bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 ? 0 : errno;
  for (const Sender& sender : senders_) {
    const ip_mreq membership{group_of(port_), host_of(sender.address)};
    if (error == 0 && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0)
      joined = true;
  }
  if (error == 0 && !joined) error = errno;
  if (error == 0) error = home_->watch(fd);
  if (error != 0) {
    close_kept(fd);
    return error;
  }
  fd_ = fd;
  listening_.store(true, std::memory_order_release);
  return 0;
}

void Crowd::send(const NetAddress& from, std::span<const uint8_t> message) {
  if (message.size() > kMaxCrowdMessage) return;
  uint8_t head[kHead];
  put32(head, kMagic);
  put32(head + 4, kProtocolVersion);
  put64(head + 8, self_.node);
  put32(head + 16, self_.slot);
  put32(head + 20, self_.generation);
  const std::lock_guard lock(mutex_);  // numbers leave in their order
  if (senders_.empty()) return;
  const auto own =
      std::find_if(senders_.begin(), senders_.end(), [&](const Sender& s) { return s.address == from; });
  Sender& sender = own != senders_.end() ? *own : senders_.front();
  if (sender.fd < 0) sender.fd = open_sender(sender.address);
  put64(head + 24, next_number_++);
  const Digest digest = proof(key_, head, message);
  std::copy(digest.begin(), digest.end(), head + kSigned);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port_);
  where.sin_addr = group_of(port_);
  iovec parts[] = {{head, sizeof head}, {const_cast<uint8_t*>(message.data()), message.size()}};
  msghdr all{};
  all.msg_name = &where;
  all.msg_namelen = sizeof where;
  all.msg_iov = parts;
  all.msg_iovlen = 2;
  [[maybe_unused]] const ssize_t sent = sendmsg(sender.fd, &all, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Numbers may overtake each other by less than kWindow.
bool Crowd::is_new(const ProcessId& sender, uint64_t number) {
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

size_t Crowd::receive(std::array<uint8_t, kMaxCrowdMessage>* message) {
  if (!listens()) return 0;
  for (;;) {
    uint8_t head[kHead];
    iovec parts[] = {{head, sizeof head}, {message->data(), message->size()}};
    msghdr all{};
    all.msg_iov = parts;
    all.msg_iovlen = 2;
    const ssize_t got = recvmsg(fd_, &all, MSG_DONTWAIT);
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
