// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast messages to and from other nodes (wire/multicast_channel.h). Each process delivers to its own
// queue pairs.
#pragma once

#include <memory>

#include "engine/datagram/delivery.h"
#include "engine/objects/process.h"
#include "wire/frame.h"
#include "wire/multicast_channel.h"

namespace verbena {

class RemoteGroups {
 public:
  explicit RemoteGroups(Process& process);

  // A queue pair of this process has been attached to a group.
  void listen();

  // Network::send_to_group. The length in `head` is filled in; `bytes` are as receive_remote_datagram()
  // expects them.
  void send(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
            uint32_t size);

  // Delivers what has come. Service thread. True: there may be more.
  bool serve();

 private:
  Process& process_;
  wire::MulticastChannel multicast_channel_;
  const bool open_;
  std::unique_ptr<DatagramSender> sender_;  // stands for all senders on other nodes
};

}  // namespace verbena
