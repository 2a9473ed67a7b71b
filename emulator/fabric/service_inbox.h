// SPDX-License-Identifier: BSD-2-Clause
//
// Calls of a service on their way from the thread that serves the socket (service_socket.h) to a thread of
// the service, which may take its time. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "fabric/service_socket.h"

namespace verbena {

class ServiceInbox {
 public:
  // More calls than this are not kept: the connection is closed.
  static constexpr size_t kMaxWaiting = 1024;

  struct Call {
    std::vector<uint8_t> message;
    MessageSocket connection;
    Descriptor passed;
  };

  ServiceInbox() = default;
  ServiceInbox(const ServiceInbox&) = delete;
  ServiceInbox& operator=(const ServiceInbox&) = delete;
  ~ServiceInbox() { close(); }

  // Receives the calls of `service`. Runs `wake(context)` after each, in the thread that serves the socket.
  void open(ServiceSocket& socket, ServiceNumber service, void (*wake)(void*), void* context);
  // No call is received any more, and the waiting ones are dropped. On return `wake` is not running.
  void close();

  // The oldest call. False: there is none.
  bool take(Call* out);

 private:
  static void put(void* self, ServiceCall& call);

  ServiceSocket* socket_ = nullptr;
  ServiceNumber service_{};
  void (*wake_)(void*) = nullptr;
  void* context_ = nullptr;
  std::mutex mutex_;
  std::deque<Call> waiting_;
};

}  // namespace verbena
