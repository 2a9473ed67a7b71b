// SPDX-License-Identifier: BSD-2-Clause
//
// Takes what has come from another process out of its socket, and carries it out. All calls are made under
// the progress lock (progress.h).
#pragma once

#include "engine/remote/answer_receiver.h"
#include "engine/remote/connections.h"
#include "engine/remote/datagram_receiver.h"
#include "engine/remote/frame_result.h"
#include "engine/remote/peer.h"
#include "wire/frame.h"

namespace verbena {

class RemoteRequester;
enum class Taken : uint8_t;

class FrameReceiver {
 public:
  FrameReceiver(Process& process, Connections& connections)
      : process_(process),
        connections_(connections),
        answers_(process, connections),
        datagrams_(process, connections) {}

  struct Caller {
    bool is_service;     // the service thread; otherwise a thread of the program, in ibv_poll_cq
    bool program_polls;  // the program has polled a moment ago, or does so now
  };
  struct Progress {
    bool moved = false;    // bytes have come
    bool lingers = false;  // something is left for the next call
  };
  // Sends what has gathered for the peer, then receives, carries out and answers. Ends the connection when it
  // is over.
  Progress drive(RemotePeer& peer, const Caller& caller);

  // Appends the acknowledgements that are due. Under out_mutex of the peer.
  static void acknowledge(RemotePeer& peer);

  // Tells the requesters that found no receive WQE that there are WQEs again.
  void tell_of_receives();

  // What has come for this queue pair is not carried out any more.
  void forget(uint32_t qpn);

 private:
  struct Intake;

  Intake take_in(RemotePeer& peer, bool program_polls);
  FrameResult take_frame(RemotePeer& peer);
  FrameResult take_bulk(RemotePeer& peer);
  FrameResult take_request(RemotePeer& peer, const wire::Frame& frame);
  FrameResult note_request(RemotePeer& peer, RemoteRequester& remote_requester, Taken taken);
  RemoteRequester* find_requester(RemotePeer& peer, const wire::RequestHead& head);
  VendorError add_requester(RemotePeer& peer, const wire::RequestHead& head, RemoteRequester** added);
  void answer_query(RemotePeer& peer, const wire::QueryHead& query);

  Process& process_;
  Connections& connections_;
  AnswerReceiver answers_;
  DatagramReceiver datagrams_;
};

}  // namespace verbena
