// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/qp_locations.h"

#include "engine/remote/peer.h"

namespace verbena {
namespace {

constexpr size_t kMostKnown = 4096;

}  // namespace

void QpLocations::note(const wire::NetAddress& node, uint32_t qpn, const std::shared_ptr<RemotePeer>& peer) {
  std::lock_guard lock(mutex_);
  if (peers_.size() >= kMostKnown) peers_.clear();
  peers_[{node, qpn}] = peer;
}

std::shared_ptr<RemotePeer> QpLocations::connected(const wire::NetAddress& node, uint32_t qpn) const {
  std::lock_guard lock(mutex_);
  const auto found = peers_.find({node, qpn});
  std::shared_ptr<RemotePeer> peer = found != peers_.end() ? found->second.lock() : nullptr;
  return peer && peer->connected.load(std::memory_order_acquire) ? peer : nullptr;
}

}  // namespace verbena
