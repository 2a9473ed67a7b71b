// SPDX-License-Identifier: BSD-2-Clause
//
// A requester in another process that is connected to a queue pair of this one. Its state outlives the
// connection over which its requests come. Under the progress lock (progress.h).
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
  kDone,     // carried out; RemoteRequester::acknowledgement_due says whether it is to be acknowledged
  kMore,     // more of its bytes have to come
  kSkip,     // not carried out; its bytes are of no use
  kStalled,  // nothing has happened: to be tried again
};

class RemoteRequester final : public PayloadStream {
 public:
  RemoteRequester(RemotePeer& peer, Process& process);
  RemoteRequester(const RemoteRequester&) = delete;
  RemoteRequester& operator=(const RemoteRequester&) = delete;

  // Prefetches the cache lines that a request, and the poll of its completion, will touch.
  void expect_request() const;

  // Finds the queue pair that `head` names, if it is not the one of the last request. none, peer_gone,
  // peer_mismatch.
  VendorError aim(const wire::RequestHead& head);

  // Carries out a frame. Its payload is at `bytes`, or (nullptr) is read from the stream of the peer. The
  // answers that are due are appended, except for acknowledgements.
  Taken take(const wire::RequestHead& head, const std::byte* bytes, uint32_t payload);
  // More bytes of a large frame have come.
  Taken go_on(const wire::RequestHead& head);

  // Tells a requester that found no receive WQE that there is one again, if so. True: done, or not needed any
  // more.
  bool tell_of_receives();
  bool waits_for_receive = false;  // on RemotePeer::waiting_for_receives

  // An unfinished message will not be finished: the WQE that it has taken from an XRC SRQ is flushed. The
  // caller holds no hazard guard.
  void give_back();

  // The connection is new: an unfinished message is sent again from its beginning.
  void begin_again() { request_.done = 0; }

  wire::AnswerHead acknowledgement() const;
  uint32_t target_qpn() const { return target_qpn_; }
  bool acknowledgement_due = false;

  bool peek(std::byte* to, uint32_t size) override;
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
  bool unreachable_is_explained_ = false;  // in this path generation
  Request request_{};
  uint64_t atomic_result_ = 0;
  // Results of the last atomics, in case the requests are repeated. More than a requester can have in flight
  // (ibv_qp_attr::max_rd_atomic has 8 bits).
  struct AtomicResult {
    uint64_t number;
    uint64_t value;
  };
  static constexpr size_t kResults = 256;
  std::vector<AtomicResult> results_;
  uint64_t results_kept_ = 0;
};

}  // namespace verbena
