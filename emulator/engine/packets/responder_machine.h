// SPDX-License-Identifier: BSD-2-Clause
//
// The responder of an RC or UC connection over packets: a deterministic machine without sockets, threads or
// clock. Packets that have come go in by on_packet(); the answers are taken out by next_packet(), one at a
// time, when the network takes one. What requests do is left to a ResponderHost.
//
// It checks the order of PSNs and opcodes and the lengths of packets; it sends one NAK per gap, and puts
// acknowledgements together that have not been taken out yet. It executes nothing twice: repeated SENDs and
// WRITEs are acknowledged, a READ is answered again from wherever it is asked, an atomic from the results
// that are kept.
//
// Each queue pair that is reached by packets has one, with roce_transport/packet_responder.h as its host. The
// length of a SEND is known at its end only: until then it is one more than what has come.
//
// A READ is fetched packet by packet, when the network takes it. Requests behind it may be carried out before
// (vol. 1, 10.8.3.3: a READ is ordered before later requests by a fence only).
//
// Sources: InfiniBand Architecture Specification vol. 1, 9.7.4 to 9.7.5, 9.8, annex A17.9 (CNP); the kernel's
// rxe_resp.c.
//
// Not thread-safe. After construction nothing allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/packets/packet_request.h"

namespace verbena::packets {

// A request, or the piece of it that a packet has brought.
struct ArrivedPiece {
  Kind kind = Kind::kSend;
  bool begins = false;
  bool ends = false;
  bool solicited = false;
  bool has_immediate = false;   // at its end only
  bool has_invalidate = false;  // kSend: `immediate` is the rkey
  uint32_t immediate = 0;
  uint32_t psn = 0;     // of the packet
  uint32_t offset = 0;  // of `bytes` in the message
  uint32_t length = 0;  // of the message. kSend: as far as known, one more than has come until it ends
  uint64_t remote_address = 0;  // of the message
  uint32_t rkey = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  uint32_t srqn = 0;  // XRC
  std::span<const uint8_t> bytes;
};

enum class Verdict : uint8_t {
  kDone,
  kRnr,             // no receive WQE, or not now: nothing has happened, the packet comes again
  kInvalidRequest,  // refused, by NAK code
  kRemoteAccess,
  kRemoteOperation,
  kSilence,  // refused without a NAK
};

// Called by the machine during on_packet() and next_packet(). It must not call the machine.
class ResponderHost {
 public:
  // A piece of a SEND or WRITE. Pieces come in order, each once, except after kRnr.
  virtual Verdict take(const ArrivedPiece& piece) = 0;
  // May the READ be carried out? Asked when it comes, and when it comes again.
  virtual Verdict check_read(const ArrivedPiece& read) = 0;
  // Bytes [offset, offset + to.size()) of what `read` asks for.
  virtual Verdict fetch(const ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) = 0;
  // An atomic, or an ATOMIC WRITE (`before` stays as it is). Once for each.
  virtual Verdict change(const ArrivedPiece& atomic, uint64_t* before) = 0;
  // ibv_qp_attr::min_rnr_timer, sent after kRnr.
  virtual uint8_t rnr_timer() = 0;
  // The message of which pieces were taken will not be finished (UC; or the machine has failed).
  virtual void abandon() = 0;

 protected:
  ~ResponderHost() = default;
};

struct ResponderOptions {
  Connection connection{};
  uint32_t first_psn = 0;
  uint32_t max_dest_rd_atomic =
      1;  // READs and atomics that it works on, and results of atomics that it keeps
};

class ResponderMachine {
 public:
  ResponderMachine(const ResponderOptions& options, ResponderHost& host);

  // A request of the peer: well-formed, from its address, and for this queue pair. After a refusal all are
  // ignored.
  void on_packet(const roce::Packet& packet);

  // A packet of the peer was marked on the way (ECN): the peer gets a CNP, once in kCnpInterval.
  void on_mark(int64_t now);
  static constexpr int64_t kCnpInterval = 50'000;  // ns

  // The next answer. False: none, until a packet comes.
  bool next_packet(OutgoingPacket* out);

  bool is_answer_due() const { return cnp_due_ || answer_count_ != 0; }

  // Are acknowledgements all that is due? They may wait for the requester's next packet, or for a moment.
  bool may_wait() const {
    return !cnp_due_ && answer_count_ <= 1 && (answer_count_ == 0 || answer_at(0).type == Answer::Type::kAck);
  }

  // Is a NAK due? The requester sends in vain until it has it.
  bool is_nak_due() const {
    return answer_count_ != 0 && answer_at(answer_count_ - 1).type == Answer::Type::kNak;
  }

  uint32_t expected_psn() const { return expected_psn_; }
  bool has_failed() const { return failed_; }

 private:
  // An answer that is due. The PSN of a READ's is that of its next packet.
  struct Answer {
    enum class Type : uint8_t { kAck, kNak, kRead, kAtomic, kWritten } type = Type::kAck;
    uint8_t syndrome = 0;
    uint32_t psn = 0;
    uint32_t msn = 0;
    uint64_t before = 0;
    ArrivedPiece read{};
    uint32_t offset = 0;  // kRead: of the next packet
    bool is_repeated = false;
  };
  struct AtomicResult {
    uint32_t psn;
    uint64_t before;
    Answer::Type type;  // kAtomic or kWritten
    bool is_valid;
  };
  struct Message {
    bool is_active = false;
    Kind kind = Kind::kSend;
    uint32_t done = 0;
    uint32_t length = 0;
    uint64_t remote_address = 0;
    uint32_t rkey = 0;
  };

  ArrivedPiece piece_of(const roce::Packet& packet, const roce::OpcodeInfo& info) const;
  bool fits(const roce::Packet& packet, const roce::OpcodeInfo& info) const;
  void in_order(const roce::Packet& packet, const roce::OpcodeInfo& info);
  void unreliable(const roce::Packet& packet, const roce::OpcodeInfo& info);
  void repeated(const roce::Packet& packet, const roce::OpcodeInfo& info);
  void take(const roce::Packet& packet, const roce::OpcodeInfo& info);
  void read(const roce::Packet& packet, const roce::OpcodeInfo& info);
  void atomic(const roce::Packet& packet, const roce::OpcodeInfo& info);
  void not_ready(uint32_t psn);
  void refuse(Verdict verdict, uint32_t psn);
  void drop_message();

  bool build_read(Answer& answer, OutgoingPacket* out);
  void build_cnp(OutgoingPacket* out);
  const Answer& answer_at(uint32_t index) const {
    return answers_[(first_answer_ + index) % answers_.size()];
  }
  Answer& answer_at(uint32_t index) { return answers_[(first_answer_ + index) % answers_.size()]; }
  void append(const Answer& answer);
  void acknowledge(uint32_t psn);
  void forget_answers_from(uint32_t psn);
  bool make_room();
  void forget_first_answer();
  uint32_t responses_due() const;

  const ResponderOptions options_;
  ResponderHost& host_;
  uint32_t expected_psn_;
  uint32_t msn_ = 0;
  bool cnp_due_ = false;
  int64_t cnp_at_ = INT64_MIN / 2;  // the last one
  bool nak_sent_ = false;           // since the expected PSN is awaited
  bool failed_ = false;
  Message message_;
  std::vector<Answer> answers_;  // a ring
  uint32_t first_answer_ = 0;
  uint32_t answer_count_ = 0;
  std::vector<AtomicResult> results_;  // a ring
  uint64_t results_kept_ = 0;
};

}  // namespace verbena::packets
