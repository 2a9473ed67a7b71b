// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/within_node.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/objects/network.h"
#include "fabric/control_rpc.h"
#include "fabric/fork_descriptors.h"
#include "fabric/node.h"
#include "fabric/node_membership.h"

namespace verbena {
namespace {

constexpr size_t kMostPassed = 1024 * 1024;

struct ConnectionRequest {
  // No other request of the control RPC begins with these.
  static constexpr uint64_t kBrings = 0x6c6c6163, kAsks = 0x6b736163, kPassesDatagrams = 0x6d676463;
  uint64_t magic;
  wire::ProcessId from;
};
static_assert(std::is_trivially_copyable_v<ConnectionRequest>);

wire::EstablishedConnection established(const wire::ProcessId& peer, int fd, bool begun_here) {
  wire::EstablishedConnection connection;
  connection.fd = fd;
  connection.peer = peer;
  connection.peer_address = connection.own_address = kThisNode;
  connection.target = wire::Target::of_process(peer);
  connection.begun_here = begun_here;
  return connection;
}

int offer_within_node(const NodeMembership& membership, const wire::ProcessId& id, uint64_t magic,
                      const wire::ProcessId& self, int descriptor) {
  const ConnectionRequest request{magic, self};
  return offer(slot_address(membership.directory(), membership.node(), id.slot, id.generation), &request,
               sizeof request, descriptor);
}

// The request, if it is of that kind and from a process of this node.
bool read_request(const wire::ProcessId& self, const std::byte* message, uint64_t magic,
                  ConnectionRequest* request) {
  std::memcpy(request, message, sizeof *request);
  return request->magic == magic && request->from.node == self.node && request->from.slot < kMaxSlots &&
         request->from.somebody();
}

bool is_stream(const Descriptor& passed) {
  int kind = 0;
  socklen_t size = sizeof kind;
  return getsockopt(passed.fd, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_STREAM;
}

}  // namespace

int connect_within_node(const NodeMembership& membership, const wire::ProcessId& self,
                        const wire::ProcessId& id, wire::EstablishedConnection* connection) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return errno;
  const int error = offer_within_node(membership, id, ConnectionRequest::kBrings, self, ends[1]);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return error;
  }
  keep_from_children(ends[0]);
  *connection = established(id, ends[0], true);
  return 0;
}

int ask_within_node(const NodeMembership& membership, const wire::ProcessId& self,
                    const wire::ProcessId& id) {
  return offer_within_node(membership, id, ConnectionRequest::kAsks, self, -1);
}

int pass_datagrams_within_node(const NodeMembership& membership, const wire::ProcessId& self,
                               const wire::ProcessId& id, std::span<const std::byte> frames) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return errno;
  const Descriptor own(ends[0]), others(ends[1]);
  if (send(own.fd, frames.data(), frames.size(), MSG_NOSIGNAL) < 0) return errno;
  return offer_within_node(membership, id, ConnectionRequest::kPassesDatagrams, self, others.fd);
}

bool is_connection_request(const std::byte* message, size_t size) {
  ConnectionRequest request;
  if (size != sizeof request) return false;
  std::memcpy(&request, message, size);
  return request.magic == ConnectionRequest::kBrings || request.magic == ConnectionRequest::kAsks ||
         request.magic == ConnectionRequest::kPassesDatagrams;
}

wire::ProcessId asks_within_node(const wire::ProcessId& self, const std::byte* message) {
  ConnectionRequest request;
  return read_request(self, message, ConnectionRequest::kAsks, &request) ? request.from : wire::ProcessId{};
}

std::vector<std::byte> datagrams_within_node(const wire::ProcessId& self, const std::byte* message,
                                             const Descriptor& passed, wire::ProcessId* from) {
  ConnectionRequest request;
  if (!read_request(self, message, ConnectionRequest::kPassesDatagrams, &request) || !is_stream(passed))
    return {};
  *from = request.from;
  std::vector<std::byte> frames(kMostPassed);
  size_t size = 0;
  for (ssize_t more = 1; more > 0 && size < frames.size();
       size += static_cast<size_t>(std::max<ssize_t>(more, 0)))
    more = recv(passed.fd, frames.data() + size, frames.size() - size, MSG_DONTWAIT);
  frames.resize(size);
  return frames;
}

bool accept_within_node(const wire::ProcessId& self, const std::byte* message, Descriptor& passed,
                        wire::EstablishedConnection* connection) {
  ConnectionRequest request;
  if (!is_stream(passed) || !read_request(self, message, ConnectionRequest::kBrings, &request)) return false;
  keep_from_children(passed.fd);
  *connection = established(request.from, passed.release(), false);
  return true;
}

}  // namespace verbena
