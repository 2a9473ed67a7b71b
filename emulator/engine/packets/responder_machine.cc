// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/responder_machine.h"

#include <algorithm>

#include "engine/rules/psn.h"
#include "roce/opcode.h"
#include "roce/syndrome.h"

namespace verbena::packets {
namespace {

using roce::NakCode;
using roce::OpcodeInfo;
using roce::PacketType;

Kind kind_of(roce::Operation operation) {
  switch (operation) {
    case roce::Operation::kWrite:
      return Kind::kWrite;
    case roce::Operation::kRead:
      return Kind::kRead;
    case roce::Operation::kCompareSwap:
      return Kind::kCompareSwap;
    case roce::Operation::kFetchAdd:
      return Kind::kFetchAdd;
    case roce::Operation::kAtomicWrite:
      return Kind::kAtomicWrite;
    default:
      return Kind::kSend;
  }
}

bool is_request(roce::Operation operation) {
  return operation == roce::Operation::kSend || operation == roce::Operation::kWrite ||
         operation == roce::Operation::kRead || operation == roce::Operation::kCompareSwap ||
         operation == roce::Operation::kFetchAdd || operation == roce::Operation::kAtomicWrite;
}

constexpr uint32_t kAtomicLength = 8;

NakCode code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRemoteAccess:
      return NakCode::kRemoteAccess;
    case Verdict::kRemoteOperation:
      return NakCode::kRemoteOperation;
    default:
      return NakCode::kInvalidRequest;
  }
}

}  // namespace

ResponderMachine::ResponderMachine(const ResponderOptions& options, ResponderHost& host)
    : options_(options), host_(host), expected_psn_(psn_of(options.first_psn)) {
  // Between two responses there is at most one acknowledgement; a NAK is the last.
  answers_.resize(2 * size_t{options.max_dest_rd_atomic} + 2);
  results_.resize(std::max(options.max_dest_rd_atomic, 1u));
}

// ---- requests ----

void ResponderMachine::on_packet(const roce::Packet& packet) {
  const OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
  if (failed_ || info == nullptr || info->transport != options_.connection.transport() ||
      !is_request(info->operation))
    return;
  if (!options_.connection.reliable) return unreliable(packet, *info);
  const int32_t ahead = psn_distance(expected_psn_, packet.bth.psn);
  if (ahead < 0) return repeated(packet, *info);
  if (ahead == 0) return in_order(packet, *info);
  if (nak_sent_) return;
  nak_sent_ = true;
  append({.type = Answer::Type::kNak,
          .syndrome = roce::nak_syndrome(NakCode::kSequence),
          .psn = expected_psn_,
          .msn = msn_});
}

void ResponderMachine::in_order(const roce::Packet& packet, const OpcodeInfo& info) {
  nak_sent_ = false;
  if (!fits(packet, info)) return refuse(Verdict::kInvalidRequest, packet.bth.psn);
  if (info.operation == roce::Operation::kRead) return read(packet, info);
  if (kind_of(info.operation) >= Kind::kCompareSwap) return atomic(packet, info);
  take(packet, info);
}

// Does the packet go on where the last one ended, and has it the bytes that it must have?
bool ResponderMachine::fits(const roce::Packet& packet, const OpcodeInfo& info) const {
  const Kind kind = kind_of(info.operation);
  if (info.begins == message_.is_active) return false;
  if (kind == Kind::kAtomicWrite)
    return packet.payload.size() == kAtomicLength && packet.reth.length == kAtomicLength;
  if (brings_response(kind)) return true;
  if (!info.begins && kind != message_.kind) return false;
  const size_t size = packet.payload.size(), mtu = options_.connection.mtu;
  if (info.ends ? size > mtu || (size == 0 && !info.begins) : size != mtu) return false;
  const uint64_t come = uint64_t{message_.done} + size;
  if (kind == Kind::kSend) return come < UINT32_MAX;
  const uint32_t length = info.begins ? packet.reth.length : message_.length;
  return info.ends ? come == length : come < length;
}

ArrivedPiece ResponderMachine::piece_of(const roce::Packet& packet, const OpcodeInfo& info) const {
  ArrivedPiece piece;
  piece.kind = kind_of(info.operation);
  piece.begins = info.begins;
  piece.ends = info.ends;
  piece.solicited = packet.bth.solicited;
  piece.has_immediate = (info.headers & roce::kHasImmDt) != 0;
  piece.has_invalidate = (info.headers & roce::kHasIeth) != 0;
  piece.immediate = piece.has_invalidate ? packet.invalidate.rkey : packet.immediate.immediate;
  piece.psn = packet.bth.psn;
  piece.srqn = packet.xrceth.srqn;
  piece.offset = message_.done;
  piece.bytes = packet.payload;
  if (piece.kind == Kind::kSend) {
    piece.length = message_.done + static_cast<uint32_t>(packet.payload.size()) + !info.ends;
  } else if (brings_value(piece.kind)) {
    const bool swaps = piece.kind == Kind::kCompareSwap;
    piece.length = kAtomicLength;
    piece.remote_address = packet.atomic.address;
    piece.rkey = packet.atomic.rkey;
    piece.compare_add = swaps ? packet.atomic.compare : packet.atomic.swap_add;
    piece.swap = swaps ? packet.atomic.swap_add : 0;
  } else {
    piece.length = info.begins ? packet.reth.length : message_.length;
    piece.remote_address = info.begins ? packet.reth.address : message_.remote_address;
    piece.rkey = info.begins ? packet.reth.rkey : message_.rkey;
  }
  return piece;
}

void ResponderMachine::take(const roce::Packet& packet, const OpcodeInfo& info) {
  const ArrivedPiece piece = piece_of(packet, info);
  const Verdict verdict = host_.take(piece);
  if (verdict == Verdict::kRnr && options_.connection.reliable) return not_ready(packet.bth.psn);
  if (verdict != Verdict::kDone) return refuse(verdict, packet.bth.psn);
  expected_psn_ = psn_next(packet.bth.psn);
  if (info.ends) {
    message_ = {};
    msn_ = (msn_ + 1) & kPsnMask;
  } else {
    message_ = {true,         piece.kind,           piece.offset + static_cast<uint32_t>(piece.bytes.size()),
                piece.length, piece.remote_address, piece.rkey};
  }
  if (packet.bth.ack_requested && options_.connection.reliable) acknowledge(packet.bth.psn);
}

void ResponderMachine::read(const roce::Packet& packet, const OpcodeInfo& info) {
  const ArrivedPiece piece = piece_of(packet, info);
  if (piece.length > 1u << 31 || !make_room()) return refuse(Verdict::kInvalidRequest, packet.bth.psn);
  const Verdict verdict = host_.check_read(piece);
  if (verdict == Verdict::kRnr) return not_ready(packet.bth.psn);
  if (verdict != Verdict::kDone) return refuse(verdict, packet.bth.psn);
  msn_ = (msn_ + 1) & kPsnMask;
  expected_psn_ = psn_add(packet.bth.psn, packets_of(piece.length, options_.connection.mtu));
  append({.type = Answer::Type::kRead, .psn = packet.bth.psn, .msn = msn_, .read = piece});
}

void ResponderMachine::atomic(const roce::Packet& packet, const OpcodeInfo& info) {
  if (!make_room()) return refuse(Verdict::kInvalidRequest, packet.bth.psn);
  uint64_t before = 0;
  const Verdict verdict = host_.change(piece_of(packet, info), &before);
  if (verdict == Verdict::kRnr) return not_ready(packet.bth.psn);
  if (verdict != Verdict::kDone) return refuse(verdict, packet.bth.psn);
  msn_ = (msn_ + 1) & kPsnMask;
  expected_psn_ = psn_next(packet.bth.psn);
  const Answer::Type type =
      info.operation == roce::Operation::kAtomicWrite ? Answer::Type::kWritten : Answer::Type::kAtomic;
  results_[results_kept_++ % results_.size()] = {packet.bth.psn, before, type, true};
  append({.type = type, .psn = packet.bth.psn, .msn = msn_, .before = before});
}

// A packet that was carried out before: its answer was lost, or is late.
void ResponderMachine::repeated(const roce::Packet& packet, const OpcodeInfo& info) {
  const uint32_t psn = packet.bth.psn;
  const Kind kind = kind_of(info.operation);
  if (!brings_response(kind)) return acknowledge(psn_add(expected_psn_, kPsnMask));
  if (kind == Kind::kRead) {
    const ArrivedPiece piece = piece_of(packet, info);
    const uint64_t packets = packets_of(piece.length, options_.connection.mtu);
    if (piece.length > 1u << 31 || psn_distance(psn, expected_psn_) < static_cast<int64_t>(packets)) return;
    // The requester asks for all that follows again, too.
    forget_answers_from(psn);
    if (responses_due() >= options_.max_dest_rd_atomic) return;
    if (const Verdict verdict = host_.check_read(piece); verdict != Verdict::kDone)
      return refuse(verdict, psn);
    return append({.type = Answer::Type::kRead, .psn = psn, .msn = msn_, .read = piece, .is_repeated = true});
  }
  for (const AtomicResult& result : results_) {
    if (!result.is_valid || result.psn != psn) continue;
    forget_answers_from(psn);
    if (responses_due() >= options_.max_dest_rd_atomic) return;
    return append(
        {.type = result.type, .psn = psn, .msn = msn_, .before = result.before, .is_repeated = true});
  }
}

// UC: what is missing is lost, and with it the rest of its message.
void ResponderMachine::unreliable(const roce::Packet& packet, const OpcodeInfo& info) {
  if (brings_response(kind_of(info.operation))) return;
  if (packet.bth.psn != expected_psn_ || info.begins) drop_message();
  expected_psn_ = psn_next(packet.bth.psn);
  if (!fits(packet, info)) return drop_message();
  take(packet, info);
}

void ResponderMachine::drop_message() {
  if (message_.is_active) host_.abandon();
  message_ = {};
}

// The packet comes again.
void ResponderMachine::not_ready(uint32_t psn) {
  nak_sent_ = true;
  append({.type = Answer::Type::kNak,
          .syndrome = roce::rnr_syndrome(host_.rnr_timer()),
          .psn = psn,
          .msn = msn_});
}

void ResponderMachine::refuse(Verdict verdict, uint32_t psn) {
  drop_message();
  if (!options_.connection.reliable) return;
  failed_ = true;
  if (verdict == Verdict::kSilence) return;
  append({.type = Answer::Type::kNak,
          .syndrome = roce::nak_syndrome(code_of(verdict)),
          .psn = psn,
          .msn = msn_});
}

// ---- answers ----

void ResponderMachine::append(const Answer& answer) {
  // A NAK takes the place of an acknowledgement before it: it acknowledges the same.
  if (answer.type == Answer::Type::kNak && answer_count_ != 0 &&
      answer_at(answer_count_ - 1).type <= Answer::Type::kNak) {
    answer_at(answer_count_ - 1) = answer;
    return;
  }
  if (answer_count_ == answers_.size()) return;  // as if lost
  answer_at(answer_count_++) = answer;
}

void ResponderMachine::acknowledge(uint32_t psn) {
  if (answer_count_ != 0) {
    Answer& last = answer_at(answer_count_ - 1);
    if (last.type == Answer::Type::kAck) {
      last.psn = psn;
      last.msn = msn_;
      return;
    }
    if (last.type == Answer::Type::kNak) return;
  }
  append({.type = Answer::Type::kAck, .syndrome = roce::ack_syndrome(), .psn = psn, .msn = msn_});
}

void ResponderMachine::forget_answers_from(uint32_t psn) {
  while (answer_count_ != 0 && psn_distance(psn, answer_at(answer_count_ - 1).psn) >= 0) --answer_count_;
  if (answer_count_ == 0) return;
  Answer& last = answer_at(answer_count_ - 1);
  if (last.type != Answer::Type::kRead) return;
  // Of a response that has begun, what comes before.
  const auto left = static_cast<uint64_t>(psn_distance(last.psn, psn)) * options_.connection.mtu;
  last.read.length = static_cast<uint32_t>(std::min<uint64_t>(last.read.length, last.offset + left));
}

uint32_t ResponderMachine::responses_due() const {
  uint32_t due = 0;
  for (uint32_t i = 0; i < answer_count_; ++i)
    due += answers_[(first_answer_ + i) % answers_.size()].type >= Answer::Type::kRead;
  return due;
}

void ResponderMachine::forget_first_answer() {
  first_answer_ = static_cast<uint32_t>((first_answer_ + 1) % answers_.size());
  --answer_count_;
}

// Room for one more response. False: the requester has more requests in flight than it may. An answer that
// was due a second time does not count: a requester that sends new requests has got the first one.
bool ResponderMachine::make_room() {
  uint32_t due = responses_due(), repeated = 0;
  for (uint32_t i = 0; i < answer_count_; ++i) repeated += answer_at(i).is_repeated;
  if (due - repeated >= options_.max_dest_rd_atomic) return false;
  for (bool found = false; due >= options_.max_dest_rd_atomic && !found; due = responses_due()) {
    found = answer_at(0).is_repeated;
    forget_first_answer();
  }
  return true;
}

// A packet of the response to a READ. False: there is none, because its memory is gone.
bool ResponderMachine::build_read(Answer& answer, OutgoingPacket* out) {
  const uint32_t left = answer.read.length - answer.offset;
  const uint32_t size = std::min(left, options_.connection.mtu);
  if (const Verdict verdict = host_.fetch(answer.read, answer.offset, out->make_payload(size));
      verdict != Verdict::kDone) {
    answer_count_ = 0;
    refuse(verdict, answer.psn);
    return false;
  }
  const bool is_first = answer.offset == 0, is_last = left == size;
  const PacketType type = is_first
                              ? (is_last ? PacketType::kReadResponseOnly : PacketType::kReadResponseFirst)
                              : (is_last ? PacketType::kReadResponseLast : PacketType::kReadResponseMiddle);
  out->packet.bth.opcode = roce::opcode_of(options_.connection.transport(), type);
  answer.offset += size;
  answer.psn = psn_next(answer.psn);
  return true;
}

void ResponderMachine::on_mark(int64_t now) {
  if (now - cnp_at_ < kCnpInterval) return;
  cnp_at_ = now;
  cnp_due_ = true;
}

// BECN is set, and 16 reserved bytes follow (annex A17.9.3).
void ResponderMachine::build_cnp(OutgoingPacket* out) {
  constexpr size_t kReserved = 16;
  cnp_due_ = false;
  out->packet = {};
  out->packet.bth.opcode = roce::kCnpOpcode;
  out->packet.bth.becn = true;
  out->packet.bth.pkey = options_.connection.pkey;
  out->packet.bth.destination_qpn = options_.connection.remote_qpn;
  std::ranges::fill(out->make_payload(kReserved), uint8_t{0});
}

bool ResponderMachine::next_packet(OutgoingPacket* out) {
  if (cnp_due_) {
    build_cnp(out);
    return true;
  }
  while (answer_count_ != 0) {
    Answer& answer = answer_at(0);
    roce::Packet& packet = out->packet;
    packet = {};
    packet.bth.destination_qpn = options_.connection.remote_qpn;
    packet.bth.pkey = options_.connection.pkey;
    packet.bth.psn = answer.psn;
    packet.aeth = {answer.type <= Answer::Type::kNak ? answer.syndrome : roce::ack_syndrome(), answer.msn};
    packet.atomic_ack = {answer.before};
    bool is_last = true;
    if (answer.type == Answer::Type::kRead) {
      if (!build_read(answer, out)) continue;
      is_last = answer.offset == answer.read.length;
    } else {
      const PacketType type = answer.type == Answer::Type::kAtomic    ? PacketType::kAtomicAcknowledge
                              : answer.type == Answer::Type::kWritten ? PacketType::kReadResponseOnly
                                                                      : PacketType::kAcknowledge;
      packet.bth.opcode = roce::opcode_of(options_.connection.transport(), type);
    }
    if (is_last) forget_first_answer();
    return true;
  }
  return false;
}

}  // namespace verbena::packets
