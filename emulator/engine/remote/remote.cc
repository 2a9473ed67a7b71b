// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote.h"

#include "adapter/clock.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/datagram_receiver.h"
#include "engine/remote/within_node.h"

namespace verbena {

Remote::Remote(Process& process, const wire::ProcessId& self, const Connector& connector)
    : process_(process),
      self_(self),
      connections_(process, self, connector, *this),
      deadlines_(process.membership()),
      progress_(process, connections_, receiver_, deadlines_) {}

void Remote::connect(Qp& qp, const std::shared_ptr<Transport>& transport) {
  const auto path = std::static_pointer_cast<RemotePath>(transport);
  {
    std::lock_guard lock(progress_.mutex());
    connections_.add_route(qp, path);
  }
  if (qp.type == IBV_QPT_XRC_RECV || !connections_.begins(*path)) return;
  seek(qp.shared->qpn);
  process_.membership().kick();
}

void Remote::forget(Qp& qp) {
  flush_all();
  {
    std::lock_guard lock(progress_.mutex());
    connections_.remove_route(qp);
    receiver_.forget(qp.shared->qpn);
  }
  deadlines_.forget(qp);
}

void Remote::take_connection_request(const std::byte* message, Descriptor& passed) {
  if (const wire::ProcessId by = asks_within_node(self_, message); by.somebody()) {
    std::lock_guard lock(progress_.mutex());
    return connections_.connect_as_asked(by);
  }
  wire::ProcessId from;
  if (const auto frames = datagrams_within_node(self_, message, passed, &from); !frames.empty())
    return receive_passed_datagrams(process_, from, frames);
  wire::EstablishedConnection connection;
  if (accept_within_node(self_, message, passed, &connection)) arrived(connection);
}

wire::Refusal Remote::let_in(const wire::EstablishedConnection& arriving,
                             const std::function<bool()>& welcome) {
  std::lock_guard lock(progress_.mutex());  // until it is in use: no own request for it begins meanwhile
  if (connections_.prefers_own(arriving, now_ns())) return wire::Refusal::kBusy;
  if (!welcome()) return wire::Refusal::kClosed;
  take(arriving);
  return wire::Refusal::kNone;
}

void Remote::arrived(const wire::EstablishedConnection& arrived) {
  std::lock_guard lock(progress_.mutex());
  take(arrived);
}

void Remote::take(const wire::EstablishedConnection& arrived) {
  if (!connections_.may_enter(arrived)) return;
  // What has come over an earlier connection is not lost; messages of UC would be.
  const std::shared_ptr<RemotePeer> peer = connections_.peers().of(arrived.peer);
  if (peer->connected.load(std::memory_order_relaxed)) progress_.drain(*peer);
  if (peer->connected.load(std::memory_order_relaxed)) connections_.lose(*peer);
  connections_.admit(arrived);
}

void Remote::failed(uint64_t request_id, wire::Refusal refusal) {
  std::lock_guard lock(progress_.mutex());
  connections_.failed(request_id, refusal);
}

void Remote::taken(uint64_t request_id) {
  std::lock_guard lock(progress_.mutex());
  connections_.taken(request_id);
}

}  // namespace verbena
