// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/roce_groups.h"

#include <string.h>

#include <algorithm>
#include <span>
#include <string>

#include "engine/objects/process.h"
#include "fabric/fork_descriptors.h"
#include "observe/log.h"

namespace verbena {
namespace {

std::span<const std::array<uint8_t, 16>> addresses_of(const Process& process) {
  const NetworkDescription& network = process.directory().devices().network;
  return std::span(network.addresses).first(std::min(network.count, kMaxGids));
}

}  // namespace

RoceGroups::~RoceGroups() {
  for (const auto& socket : sockets_) no_longer_keep(socket->fd());
}

bool RoceGroups::is_own(const wire::NetAddress& from) const {
  const auto own = addresses_of(process_);
  return std::find(own.begin(), own.end(), from.bytes) != own.end();
}

// On every interface that has an address of the node.
std::unique_ptr<udp::RoceSocket> RoceGroups::join(const MulticastGid& gid) const {
  auto socket = std::make_unique<udp::RoceSocket>();
  const wire::NetAddress group{gid};
  std::string problem;
  int error = EADDRNOTAVAIL;
  bool any = false;
  for (const auto& address : addresses_of(process_)) {
    if (wire::NetAddress{address}.is_ipv4() != group.is_ipv4()) continue;
    error = any ? socket->join_group({address}) : socket->open_group(group, {address}, &problem);
    any |= error == 0;
  }
  if (any) {
    socket->receive_in_batches();
    return socket;
  }
  VERBENA_WARN(roce_group, "ibv_attach_mcast: packets of other machines to %s do not arrive: %s",
               group.text().c_str(), problem.empty() ? strerror(error) : problem.c_str());
  return nullptr;
}

void RoceGroups::follow(void (*changed)(void*, int, bool), void* context) {
  const std::vector<MulticastGid> wanted =
      MulticastTable(process_.directory()).groups_of(process_.membership().slot());
  std::erase_if(sockets_, [&](const std::unique_ptr<udp::RoceSocket>& socket) {
    if (std::find(wanted.begin(), wanted.end(), socket->own().address.bytes) != wanted.end()) return false;
    changed(context, socket->fd(), false);
    no_longer_keep(socket->fd());
    return true;
  });
  for (const MulticastGid& gid : wanted) {
    const bool is_there = std::any_of(sockets_.begin(), sockets_.end(),
                                      [&](const auto& socket) { return socket->own().address.bytes == gid; });
    if (is_there || sockets_.size() >= kMost) continue;
    auto socket = join(gid);
    if (!socket) continue;
    keep_from_children(socket->fd());
    changed(context, socket->fd(), true);
    sockets_.push_back(std::move(socket));
  }
}

}  // namespace verbena
