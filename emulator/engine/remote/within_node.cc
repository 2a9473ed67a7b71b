// SPDX-License-Identifier: BSD-2-Clause
//
// Processes of one node that cannot reach each other's memory: whoever has something to send makes a
// connection, a pair of unix streams, and hands one end to the other process' service thread
// (fabric/control_rpc.h). From there on it is as between nodes.
#include <errno.h>
#include <sys/socket.h>

#include <cstring>
#include <type_traits>

#include "engine/remote/remote.h"
#include "fabric/control_rpc.h"
#include "fabric/fork_descriptors.h"
#include "fabric/node.h"
#include "observe/log.h"

namespace verbena {
namespace {

struct Message {
  static constexpr uint64_t kConnectRequest = 0x6c6c6163;  // of no other question
  uint64_t what = kConnectRequest;
  wire::ProcessId from;
};
static_assert(std::is_trivially_copyable_v<Message>);

wire::EstablishedConnection arrived_from(const wire::ProcessId& peer, int connection, bool begun_here) {
  wire::EstablishedConnection arrived;
  arrived.fd = connection;
  arrived.peer = peer;
  arrived.peer_address = arrived.own_address = kThisNode;
  arrived.target = wire::Target::of_process(peer);
  arrived.begun_here = begun_here;
  return arrived;
}

}  // namespace

bool is_connection_request(const std::byte* bytes, size_t size) {
  Message message;
  if (size != sizeof message) return false;
  std::memcpy(&message, bytes, size);
  return message.what == Message::kConnectRequest;
}

std::shared_ptr<Transport> Remote::path_within(const PeerAdapter& to, uint32_t qpn) {
  auto path = std::make_shared<RemotePath>();
  path->remote = this;
  path->process = {self_.node, to.slot(), to.generation()};
  path->qpn = qpn;
  path->path_generation = next_path_generation_.fetch_add(1, std::memory_order_relaxed);
  return path;
}

void Remote::request_connection_within(const wire::Target& target) {
  wire::ProcessId id = target.process;
  if (target.kind == wire::TargetKind::kQueuePair) {
    QpnEntry found;
    if (!process_.directory().find_qpn(target.number, &found)) return;
    id = {self_.node, found.slot,
          process_.directory().slot(found.slot).generation.load(std::memory_order_acquire)};
  }
  const std::shared_ptr<RemotePeer> peer = peer_of(id);
  if (target.kind == wire::TargetKind::kQueuePair) know(kThisNode, target.number, peer);
  if (peer->connected.load(std::memory_order_relaxed)) return;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  const Message message{Message::kConnectRequest, self_};
  const int error = offer(slot_folder(process_.membership().node(), id.slot, id.generation), &message,
                          sizeof message, ends[1]);
  close(ends[1]);
  if (error == 0) {
    keep_from_children(ends[0]);
    return admit(arrived_from(id, ends[0], true));
  }
  close(ends[0]);
  VERBENA_INFO("no connection to process %u of this node: errno %d", id.slot, error);
  if (error == ENOENT || error == ECONNREFUSED) peer->gone = true;
}

void Remote::take_connection_request(const std::byte* bytes, Descriptor& connection) {
  Message message;
  std::memcpy(&message, bytes, sizeof message);
  int kind = 0;
  socklen_t size = sizeof kind;
  const bool is_stream =
      getsockopt(connection.fd, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_STREAM;
  if (!is_stream || message.from.node != self_.node || message.from.slot >= kMaxSlots ||
      !message.from.somebody())
    return;  // one that has ended meanwhile may have left messages
  keep_from_children(connection.fd);
  arrived(arrived_from(message.from, connection.release(), false));
}

}  // namespace verbena
