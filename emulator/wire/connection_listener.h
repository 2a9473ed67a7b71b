// SPDX-License-Identifier: BSD-2-Clause
//
// The connection listener of a process on a node that has a network. It accepts connections from processes of
// other nodes that can prove the fabric's key, and it connects to them. The result is a connected,
// authenticated, non-blocking TCP socket. The listener does not look at the bytes that follow.
//
// Each process listens itself, at the same addresses and port as the others of its node (SO_REUSEPORT,
// socket(7)). The process that the kernel gives a connection to
// - does the handshake (handshake.h),
// - looks up the process that the connection is for,
// - passes the connection to that process through a unix socket in its slot folder.
//
// Threads:
// - open() and close(): the thread that creates and ends the process's adapter, while the service thread does
//   not run serve().
// - serve(): the service thread alone.
// - connect() and cancel(): any thread.
// Observers are called from serve(), without a lock of the listener held: they may call connect().
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
  // It is kept from forked children (fabric/fork_descriptors.h) until its owner ends that and closes it.
  // connected, authenticated, non-blocking, close-on-exec, TCP_NODELAY; owned by the observer, which closes
  // it
  int fd = -1;
  ProcessId peer;
  NetAddress peer_address;  // the source address, or the address of the request
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
  // Before that, perhaps several times: a process at the other end has accepted the connection, and has not
  // replied yet.
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

  // Listens at the addresses of the membership's node. Both arguments must outlive the listener. 0, or an
  // errno and *problem with the reason in one line:
  // - ENONET: the node has no network; nothing is opened.
  // - EADDRINUSE: another program or node has the port.
  // - EPERM, ENOENT, EINVAL: the node's key cannot be used.
  // - Other errno: an error of the kernel.
  int open(NodeMembership& membership, ConnectionObserver& observer, std::string* problem);
  bool is_open() const;

  // Sets the observer of connections for the connection manager (is_for_cm()). nullptr: none; after return
  // the former one is not called any more. While there is none, such connections are refused. Any thread, but
  // not from within an observer, and not with a lock that an observer takes.
  void receive_for_cm(ConnectionObserver* observer);

  // Finds the process of the node that listens for a service at an address: its slot, or false. The
  // connection manager provides the function, for all listeners. Set it before any listener is opened.
  using FindListener = bool (*)(const NodeDirectory& directory, const std::string& node, const NetAddress& to,
                                uint64_t service, uint32_t* slot);
  static void find_listeners_by(FindListener find);

  // Readable whenever serve() has work; -1 while the listener is not open. open() lets the service thread
  // watch it (NodeMembership::watch).
  int descriptor() const;

  // Does all work that is due; never blocks. Returns when it must be called again at the latest
  // (CLOCK_MONOTONIC, ns). kEndOfTime (adapter/clock.h): when the descriptor is readable.
  int64_t serve();

  // Requests a connection to `target` at the node with address `to`, from the address `from` of this node
  // (all zero: the first of the same family). Returns the request id at once; it is never 0. Attempts are
  // repeated with growing pauses while that may help (is_transient()) and until `deadline_ns`
  // (CLOCK_MONOTONIC). Then failed() reports the last reason.
  // - A listener that does not react (its process is stopped) is bypassed: other attempts meet other
  //   listeners.
  // - Nobody listens, and the target is a process by its name (kProcess, kCmProcess) or a service
  //   (kCmListener): the target is gone, and failed() reports that at once.
  uint64_t connect(const NetAddress& to, const NetAddress& from, const Target& target, int64_t deadline_ns);

  // The end of the request is not reported any more, unless it is being reported at this moment.
  void cancel(uint64_t request_id);

  // Stops listening, closes unfinished connections and drops all requests. Idempotent.
  void close();

  // The id of this process. The listener must be open.
  ProcessId self() const;

 private:
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace verbena::wire
