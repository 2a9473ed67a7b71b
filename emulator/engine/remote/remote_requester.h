// SPDX-License-Identifier: BSD-2-Clause
//
// A requester on another node that is connected to a queue pair of this process. Its state outlives the connection that
// its requests come over. All of it is the driver's (Remote::drive).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/objects/request.h"
#include "engine/objects/requester_context.h"
#include "engine/responder/payload_stream.h"
#include "wire/frame.h"

namespace verbena {

struct RemotePeer;

enum class Taken : uint8_t {
  kDone,     // the frame is dealt with; `answered` says whether an acknowledgement is due
  kMore,     // more of its bytes have to come
  kSkip,     // its bytes are of no use
  kStalled,  // nothing has happened: come again
};

class RemoteRequester final : public PayloadStream {
 public:
  RemoteRequester(RemotePeer& peer, Process& process);
  RemoteRequester(const RemoteRequester&) = delete;
  RemoteRequester& operator=(const RemoteRequester&) = delete;

  // Asks for the lines that carrying out a request, and polling its completion, is about (expect_request() of
  // remote_path.h says why).
  void expect_request() const;

  // Does it still lead to queue pair `qpn` of this process, or can it be made to? none; peer_gone,
  // peer_not_ready, peer_mismatch.
  VendorError aim(const wire::RequestHead& head);

  // A frame whose bytes are all at `bytes`, or (large) begins to come out of the peer's stream. kSkip and
  // kDone are final; the answers that are due have been appended, but for acknowledgements.
  Taken take(const wire::RequestHead& head, const std::byte* bytes, uint32_t payload);
  // More of a large one's bytes have come.
  Taken go_on(const wire::RequestHead& head);

  // Tells a requester that found no receive request, when there is one again. True: there is nothing to tell
  // any more.
  bool tell_of_receives();
  bool waits_for_receive = false;  // it is on the peer's list

  // Half of a message will not be finished: what it has in hand of an XRC SRQ is flushed. Without a hazard
  // guard.
  void give_back();

  // The connection is new: half of a message is none.
  void begin_again() { request_.done = 0; }

  wire::AnswerHead acknowledgement() const;
  uint32_t target_qpn() const { return target_qpn_; }
  bool acknowledgement_due = false;

  Placed place(Request& request, const iovec* remote, size_t remotes) override;
  Placed fetch(Request& request, const iovec& remote) override;

 private:
  bool begin_path_generation(const wire::RequestHead& head);
  Taken execute(const wire::RequestHead& head, const iovec* ranges, size_t count);
  Taken judge(const wire::RequestHead& head, const SendOperation& operation, const struct Response& response,
              VendorError unreachable);
  Taken repeat(const wire::RequestHead& head, const SendOperation& operation);
  void answer(wire::FrameKind kind, uint64_t number, uint64_t value, uint8_t timer = 0);
  void ask_to_be_woken();
  void remember_atomic(uint64_t number, uint64_t value);

  RemotePeer& peer_;
  RequesterContext requester_;
  uint32_t target_qpn_ = 0;
  uint64_t path_generation_ = 0;
  uint64_t expected_ = 0;
  bool latched_ = false;  // `expected_` is known
  Request request_{};
  uint64_t atomic_result_ = 0;
  // Results of atomics, in case they are asked for again: the last ones, more than a requester can have in
  // flight (ibv_qp_attr::max_rd_atomic has 8 bits).
  struct AtomicResult {
    uint64_t number;
    uint64_t value;
  };
  static constexpr size_t kResults = 256;
  std::vector<AtomicResult> results_;
  uint64_t results_kept_ = 0;
};

}  // namespace verbena
