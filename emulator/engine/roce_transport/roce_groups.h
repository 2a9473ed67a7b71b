// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast groups of RoCE v2: the GID of a group is the IP group that its packets go to, as ::ffff:a.b.c.d
// or as the IPv6 address itself (Annex A17; the kernel's cma.c, cma_iboe_set_mgid()). Nobody administers
// them: a process with members of a group has a socket that has joined it, and delivers what comes to its own
// members. Members on the sender's node are served in shared memory (datagram/datagram.cc), so that packets
// of the node's own addresses, which the kernel hands back to its sockets, do not count.
//
// Under the lock of the receiver (roce_progress.h).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "fabric/multicast_table.h"
#include "udp/roce_socket.h"

namespace verbena {

class Process;

class RoceGroups {
 public:
  static constexpr size_t kMost = 256;  // groups of one process

  explicit RoceGroups(Process& process) : process_(process) {}
  ~RoceGroups();
  RoceGroups(const RoceGroups&) = delete;
  RoceGroups& operator=(const RoceGroups&) = delete;

  // Joins the groups that this process has members of now, and leaves the others. `changed(context, fd,
  // joined)`: there is a new socket, or one is about to be closed.
  void follow(void (*changed)(void* context, int fd, bool joined), void* context);

  // Of each group; their address, RoceSocket::own(), is the group's.
  const std::vector<std::unique_ptr<udp::RoceSocket>>& sockets() const { return sockets_; }

  // Is a packet to a group from this address one of the node's own?
  bool is_own(const wire::NetAddress& from) const;

 private:
  std::unique_ptr<udp::RoceSocket> join(const MulticastGid& gid) const;

  Process& process_;
  std::vector<std::unique_ptr<udp::RoceSocket>> sockets_;
};

}  // namespace verbena
