// SPDX-License-Identifier: BSD-2-Clause
//
// The socket of a process, through which the other processes of the node reach its services. A peer connects
// and sends one message: the number of a service, then what that service expects, with or without a
// descriptor. The message and its connection go to the handler of the service. A handler may reply over the
// connection, or keep it; otherwise the connection is closed.
//
// A peer that connects and sends nothing holds a descriptor here and delays nobody. Peers of another user,
// messages with an unknown number, too short or too long ones, and those of a service without a handler: the
// connection is closed. Treat the bytes of a message as untrusted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "fabric/descriptor.h"
#include "fabric/message_socket.h"
#include "fabric/slot_address.h"

namespace verbena {

// On the wire.
enum class ServiceNumber : uint32_t {
  kSegment = 1,            // segment_passing.h
  kRequest = 2,            // control_rpc.h
  kPassedConnection = 3,   // wire/connection_passing.h
  kConnectionManager = 4,  // cm/link.h
  kWake = 5,               // kick.h: nothing but the wake-up; has no handler
  kPackets = 6,            // engine/roce_transport/port_sharing.h
  kRegion = 7,             // region_passing.h
};
inline constexpr size_t kServices = 7;

inline constexpr size_t kMaxServiceMessage = 1024;  // bytes after the number
inline constexpr int kServiceBacklog = 1024;        // connections that wait for the process

// The first message of a connection.
struct ServiceCall {
  std::span<const uint8_t> message;  // without the number
  MessageSocket connection;
  Descriptor passed;  // came with the message, or none
};

// Runs in the thread that serves the socket. Must not block: what may take its time is for another thread
// (service_inbox.h). What is not moved out of the call is closed.
using ServiceHandler = void (*)(void* context, ServiceCall& call);

class ServiceSocket {
 public:
  // The name of the socket in the slot folder.
  static constexpr const char* kName = "service";
  // More silent peers than this end the oldest.
  static constexpr size_t kMaxSilent = 256;

  ServiceSocket() = default;
  ServiceSocket(const ServiceSocket&) = delete;
  ServiceSocket& operator=(const ServiceSocket&) = delete;
  ~ServiceSocket() { close(); }

  // Listens at both places of `own`. 0 or errno; without the abstract socket (another process has the name)
  // it listens in the folder alone.
  int open(const SlotAddress& own);
  // Listens in the folder again, after somebody has deleted the socket there. The thread of serve().
  int open_again(const std::string& folder);
  void close();

  // Readable whenever serve() has work; -1 while the socket is not open, or if the program has closed its
  // descriptors.
  int descriptor() const { return epoll_fd_; }

  // Serves the peers that have come, a few at most. Never blocks. False: a peer waits and cannot be served
  // now, because the process has no descriptor left. One thread at a time.
  bool serve();

  // Sets the handler of a service. nullptr: none; on return the former one is not running any more. Any
  // thread, before and after open(), but not from within a handler of the service.
  void serve_by(ServiceNumber service, ServiceHandler handler, void* context);

 private:
  struct Registration {
    std::mutex mutex;  // held while the handler runs
    ServiceHandler handler = nullptr;
    void* context = nullptr;
  };

  void forget_descriptor();
  bool accept_waiting(const MessageSocket& listener);
  void await_message(MessageSocket& connection);
  void serve_silent(uint64_t token);
  bool serve_first(MessageSocket& connection);
  void dispatch(uint32_t number, ServiceCall& call);

  int epoll_fd_ = -1;
  MessageSocket listener_;
  MessageSocket abstract_listener_;
  uint64_t next_token_ = 2;                   // of connections; the listeners have 0 and 1
  std::map<uint64_t, MessageSocket> silent_;  // no message yet; the oldest first
  std::array<Registration, kServices> registrations_;
};

// Connects to the process at `to` and sends it the first message. Waits at most `wait_ms`.
// - 0: *connection is for the reply.
// - EAGAIN: too many peers wait there (the process may be stopped).
// - ENOENT, ECONNREFUSED: the process is gone.
// - EPERM: it is another user's.
// - EMSGSIZE: longer than kMaxServiceMessage.
// - Other errno: no descriptors, no memory.
int call_service(const SlotAddress& to, ServiceNumber service, std::span<const uint8_t> message,
                 MessageSocket* connection, std::span<const int> passed = {}, int wait_ms = 0);

}  // namespace verbena
