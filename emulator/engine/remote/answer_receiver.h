// SPDX-License-Identifier: BSD-2-Clause
//
// Answers of responders in other processes: hands them to the requester, and places what READs and atomics
// bring. All calls are made under the progress lock (progress.h).
#pragma once

#include "engine/remote/connections.h"
#include "engine/remote/frame_result.h"
#include "engine/remote/peer.h"
#include "wire/frame.h"

namespace verbena {

class AnswerReceiver {
 public:
  AnswerReceiver(Process& process, Connections& connections) : process_(process), connections_(connections) {}

  // Takes the frame at the head of the stream.
  FrameResult take(RemotePeer& peer, const wire::Frame& frame);
  // The frame before is the answer to a READ, and more of its bytes may have come (RemotePeer::bulk_in).
  FrameResult take_more(RemotePeer& peer);
  // Answers for this queue pair are of no use any more.
  static void forget(RemotePeer& peer, uint32_t qpn);

 private:
  void take_read_data(Qp* qp, RemotePeer& peer, const wire::Frame& frame);
  void take_atomic_result(Qp& qp, const wire::AnswerHead& head);
  void hand_to_requester(Qp& qp, const wire::AnswerHead& head);
  Qp* lock_requester(RemotePeer& peer, const wire::AnswerHead& head, bool* busy);
  bool scatter(Qp& qp, RemotePeer& peer, const wire::AnswerHead& head);

  Process& process_;
  Connections& connections_;
};

}  // namespace verbena
