// SPDX-License-Identifier: BSD-2-Clause
//
// Carries out what comes in packets for one RC or UC queue pair: the host of its responder machine
// (packets/responder_machine.h). It uses the same responder as all other transports (responder/responder.h),
// as a requester of another node. Under the lock of the receiver (roce_progress.h).
#pragma once

#include <cstdint>

#include "engine/objects/request.h"
#include "engine/objects/requester_context.h"
#include "engine/packets/responder_machine.h"
#include "engine/responder/payload_stream.h"
#include "engine/responder/responder.h"
#include "wire/net_address.h"

namespace verbena {

struct Qp;

class PacketResponder final : public packets::ResponderHost, private PayloadStream {
 public:
  // `from`: the peer's address, which stays where it is. `first_psn`: of the first request that comes.
  PacketResponder(Qp& qp, const wire::NetAddress& from, uint32_t remote_qpn, uint32_t first_psn);
  PacketResponder(const PacketResponder&) = delete;
  PacketResponder& operator=(const PacketResponder&) = delete;

  // Is the queue pair in a state in which it takes requests? Otherwise packets are dropped.
  bool is_ready();

  // ---- packets::ResponderHost ----
  packets::Verdict take(const packets::ArrivedPiece& piece) override;
  packets::Verdict check_read(const packets::ArrivedPiece& read) override;
  packets::Verdict fetch(const packets::ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) override;
  packets::Verdict change(const packets::ArrivedPiece& atomic, uint64_t* before) override;
  uint8_t rnr_timer() override;
  void abandon() override;

 private:
  // PayloadStream
  bool peek(std::byte* to, uint32_t size) override;
  Placed place(Request& request, const iovec* remote, size_t remotes) override;
  Placed fetch(Request& request, const iovec& remote) override;

  Response carry_out(Request& request, const LocalBytes& local);
  packets::Verdict check_again(const Request& read);
  void let_eager_settle();

  Qp& qp_;
  RequesterContext requester_;
  std::span<const uint8_t> bytes_;  // of the piece, not placed yet
  uint32_t message_psn_ = 0;        // of the first packet of the message
  uint32_t next_psn_;               // of the first request that was not carried out
};

}  // namespace verbena
