// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams that come from other processes. All calls are made under the progress lock (progress.h).
#pragma once

#include <cstddef>
#include <span>

#include "engine/remote/connections.h"
#include "engine/remote/frame_result.h"
#include "engine/remote/peer.h"
#include "wire/frame.h"

namespace verbena {

// A datagram that finds no receive WQE is dropped, as on any wire. But a queue pair that has received kReads
// datagrams in a row posts again soon, so its stream waits (kStalled):
// - for kHeld;
// - for kHeldUnscheduled, if the program has not polled kChances times since, and no connected queue pair
// uses the
//   stream: perhaps the program was not scheduled.
// Then datagrams are dropped until the queue pair receives some again.
class DatagramReceiver {
 public:
  DatagramReceiver(Process& process, Connections& connections)
      : process_(process), connections_(connections) {}

  // Delivers the frame at the head of the stream.
  FrameResult take(RemotePeer& peer, const wire::Frame& frame);

 private:
  bool may_wait(const RemotePeer& peer, uint32_t qpn) const;

  Process& process_;
  Connections& connections_;
};

// Delivers the frames that a process of this node passes without a connection (within_node.h). What is no
// datagram, and what follows it, is dropped. In the service thread; no lock is needed.
void receive_passed_datagrams(Process& process, const wire::ProcessId& from,
                              std::span<const std::byte> frames);

}  // namespace verbena
