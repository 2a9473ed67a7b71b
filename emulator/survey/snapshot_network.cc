// SPDX-License-Identifier: BSD-2-Clause
//
// The connections to other nodes, from the kernel: TCP connections with the node's port at one end and one of
// its addresses at this end (sock_diag(7), NETLINK_SOCK_DIAG), and the process that has each (proc(5),
// /proc/PID/fd).
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "fabric/descriptor.h"
#include "survey/snapshot.h"
#include "wire/net_address.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kEstablished = 1;  // TCP_ESTABLISHED of tcp_states.h
constexpr timeval kPatience{1, 0};

using ByInode = std::map<uint64_t, ConnectionSnapshot>;

wire::NetAddress address_of(uint8_t family, const uint32_t* words) {
  wire::NetAddress address;
  if (family == AF_INET) {
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(&address.bytes[12], words, 4);
  } else {
    std::memcpy(address.bytes.data(), words, 16);
  }
  return address;
}

bool is_own(const NetworkDescription& network, const wire::NetAddress& address) {
  const auto end = network.addresses.begin() + std::min(network.count, kMaxGids);
  return std::find(network.addresses.begin(), end, address.bytes) != end;
}

void take(const NetworkDescription& network, const nlmsghdr& message, ByInode* out) {
  inet_diag_msg found;
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof found)) return;
  std::memcpy(&found, NLMSG_DATA(&message), sizeof found);
  const auto near = address_of(found.idiag_family, found.id.idiag_src);
  const uint16_t near_port = ntohs(found.id.idiag_sport), far_port = ntohs(found.id.idiag_dport);
  if (!is_own(network, near) || (near_port != network.port && far_port != network.port)) return;
  ConnectionSnapshot connection;
  connection.local = near.text();
  connection.remote = address_of(found.idiag_family, found.id.idiag_dst).text();
  connection.begun_here = far_port == network.port;
  auto length = static_cast<unsigned>(NLMSG_PAYLOAD(&message, sizeof found));
  auto* attribute = reinterpret_cast<const rtattr*>(static_cast<const char*>(NLMSG_DATA(&message)) +
                                                    NLMSG_ALIGN(sizeof found));
  for (; RTA_OK(attribute, length); attribute = RTA_NEXT(attribute, length)) {
    if (attribute->rta_type != INET_DIAG_INFO) continue;
    tcp_info info{};  // that of an older kernel is shorter
    std::memcpy(&info, RTA_DATA(attribute),
                std::min(sizeof info, static_cast<size_t>(RTA_PAYLOAD(attribute))));
    connection.bytes_out = info.tcpi_bytes_acked;
    connection.bytes_in = info.tcpi_bytes_received;
    connection.retransmissions = info.tcpi_total_retrans;
    connection.round_trip_us = info.tcpi_rtt;
  }
  (*out)[found.idiag_inode] = connection;
}

void ask_kernel(uint8_t family, const NetworkDescription& network, ByInode* out) {
  const Descriptor netlink{socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
  if (netlink.fd < 0) return;
  setsockopt(netlink.fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  struct {
    nlmsghdr head;
    inet_diag_req_v2 request;
  } probe{};
  probe.head.nlmsg_len = sizeof probe;
  probe.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  probe.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  probe.request.sdiag_family = family;
  probe.request.sdiag_protocol = IPPROTO_TCP;
  probe.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  probe.request.idiag_states = 1u << kEstablished;
  if (send(netlink.fd, &probe, sizeof probe, 0) != static_cast<ssize_t>(sizeof probe)) return;
  alignas(nlmsghdr) char buffer[65536];
  for (;;) {
    const ssize_t got = recv(netlink.fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    auto length = static_cast<unsigned>(got);
    for (auto* message = reinterpret_cast<const nlmsghdr*>(buffer); NLMSG_OK(message, length);
         message = NLMSG_NEXT(message, length)) {
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return;
      take(network, *message, out);
    }
  }
}

// 12345 for a link to "socket:[12345]"; 0 for others.
uint64_t inode_of(const fs::path& link) {
  std::error_code error;
  const std::string target = fs::read_symlink(link, error).string();
  constexpr size_t kPrefix = sizeof "socket:[" - 1;
  if (error || target.compare(0, kPrefix, "socket:[") != 0) return 0;
  return std::strtoull(target.c_str() + kPrefix, nullptr, 10);
}

}  // namespace

void look_at_connections(NodeSnapshot* node) {
  const NetworkDescription& network = node->devices.network;
  if (!has_key(network)) return;  // packets have no connections
  ByInode connections;
  ask_kernel(AF_INET, network, &connections);
  ask_kernel(AF_INET6, network, &connections);
  if (connections.empty()) return;
  for (ProcessSnapshot& process : node->processes) {
    std::error_code error;
    const fs::path folder = "/proc/" + std::to_string(process.pid) + "/fd";
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
      if (const auto found = connections.find(inode_of(i->path())); found != connections.end())
        process.connections.push_back(found->second);
  }
}

}  // namespace verbena
