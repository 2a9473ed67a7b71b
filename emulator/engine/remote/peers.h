// SPDX-License-Identifier: BSD-2-Clause
//
// The processes that this process has met: one RemotePeer each. All calls are made under the progress lock
// (progress.h), the destructor's excepted.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/remote/peer.h"
#include "wire/established_connection.h"

namespace verbena {

class RemotePeers {
 public:
  explicit RemotePeers(Process& process);
  // Closes all connections. Queue pairs that the program has not destroyed may still refer to their peers.
  ~RemotePeers();
  RemotePeers(const RemotePeers&) = delete;
  RemotePeers& operator=(const RemotePeers&) = delete;

  // An epoll(7) descriptor with the sockets of all connections; `data.ptr` is the RemotePeer.
  int epoll() const { return epoll_; }

  // The peer of that name. Adds it if it is new.
  std::shared_ptr<RemotePeer> of(const wire::ProcessId& id);
  // A connected process of the node with that address; nullptr: none.
  std::shared_ptr<RemotePeer> connected_to(const wire::NetAddress& address) const;
  bool any_connected() const;
  // In the order in which they were met. Adding one invalidates iterators, not indexes.
  const std::vector<std::shared_ptr<RemotePeer>>& all() const { return peers_; }

  // Does the connection exceed the number of processes that a node can have? A peer that knows the key could
  // otherwise claim any number of names.
  bool has_enough_of(const wire::EstablishedConnection& arrived) const;

  // Takes the connection over: `peer` is connected.
  void attach(RemotePeer& peer, const wire::EstablishedConnection& arrived);
  // Closes the connection and drops what was read from it or was to be sent.
  void detach(RemotePeer& peer);

  // A route, or a request for a connection, refers to the peer, or does so no longer.
  static void hold(RemotePeer& peer) { ++peer.users; }
  void release(RemotePeer& peer);

  // Forgets peers that are not connected and that nothing refers to. Looks only at those that have become so.
  void drop_unused();

 private:
  Process& process_;
  int epoll_ = -1;
  std::vector<std::shared_ptr<RemotePeer>> peers_;
  std::vector<std::shared_ptr<RemotePeer>> perhaps_unused_;
};

}  // namespace verbena
