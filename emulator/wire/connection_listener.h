// SPDX-License-Identifier: BSD-2-Clause
//
// The connection listener of a process on a node that has a network: it lets in who comes from other nodes
// and can show the fabric's key, and goes out to them. What passes is a connected, authenticated,
// non-blocking TCP socket; bytes on it are no affair of the connection listener's. Each process listens
// itself, at the same addresses and port as the others of its node (SO_REUSEPORT, socket(7)); whoever is
// given a connection shakes hands (handshake.h), looks up whose it is and passes it on to that process
// through a unix socket in its slot folder.
//
// Threads: open() and close() by whoever makes and ends the process' adapter, while the service thread does
// not serve; serve() by the service thread alone; connect() and cancel() by any thread. ConnectionObserver
// are told from serve(), without a lock of the connection listener's held: connect() may be called from
// there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "wire/net_address.h"
#include "wire/process_id.h"
#include "wire/refusal.h"
#include "wire/target.h"

namespace verbena {
class NodeDirectory;
class NodeMembership;
}  // namespace verbena

namespace verbena::wire {

struct EstablishedConnection {
  // Also: kept from children (fabric/fork_descriptors.h), until its owner says otherwise and closes it.
  int fd = -1;  // connected, authenticated, non-blocking, close-on-exec, TCP_NODELAY; now the receiver's, who
                // closes it
  ProcessId peer;
  NetAddress peer_address;  // where it comes from, or what was called
  NetAddress own_address;   // one of this node's
  Target target;            // what was asked for, here or there
  bool begun_here = false;
  uint64_t request_id = 0;  // of connect(); 0 unless begun_here
};

class ConnectionObserver {
 public:
  virtual void arrived(const EstablishedConnection& arrived) = 0;
  virtual void failed(uint64_t request_id,
                      Refusal refusal) = 0;  // each request id ends in one of the two, once, or is cancelled
  // Before that, perhaps several times: somebody at the other end has taken the call, and has yet to answer.
  virtual void taken([[maybe_unused]] uint64_t request_id) {}

 protected:
  ~ConnectionObserver() = default;
};

class Acceptor;

class ConnectionListener {
 public:
  ConnectionListener();
  ~ConnectionListener();  // as close()
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

  // Listens at the addresses of home's node. Both must outlive the connection listener. 0; ENONET: the node
  // has no network, nothing is opened; EADDRINUSE: the port is somebody else's; EPERM, ENOENT, EINVAL: the
  // node's key cannot be used; or what the kernel says. *problem: the same in one line.
  int open(NodeMembership& membership, ConnectionObserver& observer, std::string* problem);
  bool is_open() const;

  // Who takes what is for the connection manager (is_for_cm); nullptr: nobody any more, and on return nobody
  // is told. Before it is set such calls find nobody. Any thread, but not from within an arrival, nor with a
  // lock that an arrival takes.
  void receive_for_cm(ConnectionObserver* observer);

  // Who of the node listens for a service at an address? The connection manager knows, for all gates: the
  // slot of a process of the node, or false. Set before any gate is opened.
  using FindListener = bool (*)(const NodeDirectory& directory, const std::string& node, const NetAddress& to,
                                uint64_t service, uint32_t* slot);
  static void find_listeners_by(FindListener find);

  // Readable whenever serve() has something to do; -1 while it is not open. open() has it watched by the
  // service thread (NodeMembership::watch), whatever else that sleeps on.
  int descriptor() const;

  // Does what is due; never waits. When it wants to be called again at the latest, CLOCK_MONOTONIC in
  // nanoseconds; kEndOfTime (adapter/clock.h): when its descriptor is readable.
  int64_t serve();

  // Begins to call `target` at the node with address `to`, coming from `from`, one of this node's (all zero:
  // the first of the same family). Answers at once; the request id is never 0. It is tried again, a little
  // later each time, as long as that may help (is_transient) and until `deadline_ns` (CLOCK_MONOTONIC); then
  // failed() tells the last reason. A process that cannot be woken (a stopped listener) is passed by: other
  // attempts meet other listeners. A process that is called by its name (kProcess, kCmProcess), or a service
  // (kCmListener), where nobody listens is gone, and that is said at once.
  uint64_t connect(const NetAddress& to, const NetAddress& from, const Target& target, int64_t deadline_ns);

  // The request id's end is not told any more, unless it is being told at this moment.
  void cancel(uint64_t request_id);

  // Nobody is let in any more, what is half-made is closed, tickets are forgotten. Idempotent.
  void close();

  // Who this process is; of an open gate.
  ProcessId self() const;

 private:
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace verbena::wire
