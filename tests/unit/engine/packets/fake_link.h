// SPDX-License-Identifier: BSD-2-Clause
//
// Two ends of a connection, joined by a link that loses, delays, repeats, reorders and damages packets, by
// seed and without a clock. Packets travel as bytes with their ICRC. Each end counts what it posts and what
// arrives: every message once, right, and in order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "engine/packets/requester_machine.h"
#include "engine/packets/responder_machine.h"
#include "engine/rules/psn.h"
#include "roce/icrc.h"
#include "roce/packet.h"

namespace verbena::packets {

struct LinkFaults {
  double loss = 0, repeat = 0, reorder = 0, damage = 0;
  double rnr = 0;         // how often a receive WQE is missing
  double slow = 0;        // how often an end takes a while to send what is due
  int64_t delay = 5'000;  // ns
};

// The byte at this place of message `number`, or (READ) of the memory there.
inline uint8_t byte_of(uint64_t what, uint64_t at) {
  return static_cast<uint8_t>((what * 0x9e3779b97f4a7c15 + at * 0x2545f4914f6cdd1d) >> 40);
}

// One end: requester, responder, and what both work on.
class FakeEnd final : public RequesterHost, public ResponderHost {
 public:
  FakeEnd(const RequesterOptions& sending, const ResponderOptions& answering, std::mt19937_64& random,
          const LinkFaults& faults)
      : requester(sending, *this), responder(answering, *this), random_(random), faults_(faults) {}

  bool post(PacketRequest request) {
    request.number = posted.size();
    if (!requester.post(request)) return false;
    posted.push_back(request);
    read_.push_back(0);
    if (request.kind == Kind::kFetchAdd) expected_before.push_back(added_), added_ += request.compare_add;
    return true;
  }

  // ---- RequesterHost ----
  bool gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) override {
    for (size_t i = 0; i < to.size(); ++i) to[i] = byte_of(number, offset + i);
    return true;
  }
  bool scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) override {
    EXPECT_EQ(offset, read_.at(number)) << "of READ " << number;
    for (size_t i = 0; i < from.size(); ++i)
      if (from[i] != byte_of(~0ull, posted[number].remote_address + offset + i)) ++wrong_bytes;
    read_[number] += static_cast<uint32_t>(from.size());
    return true;
  }
  bool atomic_result(uint64_t number, uint64_t before) override {
    EXPECT_EQ(before, expected_before.at(atomics_++)) << "of atomic " << number;
    return true;
  }
  void completed(uint64_t number) override {
    EXPECT_EQ(number, completions++);
    if (posted[number].kind == Kind::kRead) {
      EXPECT_EQ(read_[number], posted[number].length);
    }
  }
  void failed(uint64_t number, Failure why) override {
    failure = why;
    failed_number = number;
    ++failures;
  }

  // ---- ResponderHost: `peer` has posted what comes ----
  Verdict take(const ArrivedPiece& piece) override {
    if (peer == nullptr) return Verdict::kRemoteOperation;
    const bool takes_receive = piece.kind == Kind::kSend ? piece.begins : piece.ends && piece.has_immediate;
    if (takes_receive && chance(faults_.rnr)) return Verdict::kRnr;
    if (piece.begins) {
      // The next SEND or WRITE of the peer; with UC some may be missing, and the bytes tell which one it is.
      while (next_ < peer->posted.size() &&
             (brings_response(peer->posted[next_].kind) || (is_unreliable && !is_that(next_, piece))))
        ++next_;
      came_ = 0;
    }
    if (next_ >= peer->posted.size()) {
      ADD_FAILURE() << "a message that was not sent";
      return Verdict::kDone;
    }
    const PacketRequest& sent = peer->posted[next_];
    EXPECT_EQ(piece.kind, sent.kind) << next_;
    EXPECT_EQ(piece.offset, came_) << next_;
    for (size_t i = 0; i < piece.bytes.size(); ++i)
      if (piece.bytes[i] != byte_of(next_, piece.offset + i)) ++wrong_bytes;
    came_ += static_cast<uint32_t>(piece.bytes.size());
    if (piece.kind == Kind::kWrite) {
      EXPECT_EQ(piece.remote_address, sent.remote_address);
      EXPECT_EQ(piece.rkey, sent.rkey);
    }
    if (piece.ends) {
      EXPECT_EQ(came_, sent.length) << next_;
      EXPECT_EQ(piece.length, sent.length) << next_;
      EXPECT_EQ(piece.has_immediate, sent.has_immediate) << next_;
      EXPECT_EQ(piece.solicited, sent.solicited) << next_;
      if (piece.has_immediate || piece.has_invalidate) {
        EXPECT_EQ(piece.immediate, sent.immediate);
      }
      ++next_;
      ++arrived;
    }
    return Verdict::kDone;
  }
  Verdict check_read(const ArrivedPiece&) override { return Verdict::kDone; }
  Verdict fetch(const ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) override {
    for (size_t i = 0; i < to.size(); ++i) to[i] = byte_of(~0ull, read.remote_address + offset + i);
    return Verdict::kDone;
  }
  Verdict change(const ArrivedPiece& atomic, uint64_t* before) override {
    if (atomic.kind == Kind::kAtomicWrite) {
      while (next_atomic_write_ < peer->posted.size() &&
             peer->posted[next_atomic_write_].kind != Kind::kAtomicWrite)
        ++next_atomic_write_;
      if (next_atomic_write_ == peer->posted.size()) {
        ADD_FAILURE() << "an ATOMIC WRITE that was not sent";
        return Verdict::kDone;
      }
      EXPECT_EQ(atomic.remote_address, peer->posted[next_atomic_write_].remote_address);
      for (size_t i = 0; i < atomic.bytes.size(); ++i)
        if (atomic.bytes[i] != byte_of(next_atomic_write_, i)) ++wrong_bytes;
      ++next_atomic_write_;
      ++atomic_writes;
      return Verdict::kDone;
    }
    *before = word;
    word += atomic.compare_add;
    ++changes;
    return Verdict::kDone;
  }
  uint8_t rnr_timer() override { return 1; }  // 10 us
  void abandon() override {}

  RequesterMachine requester;
  ResponderMachine responder;
  FakeEnd* peer = nullptr;
  bool is_unreliable = false;
  std::vector<PacketRequest> posted;
  std::vector<uint64_t> expected_before;
  uint64_t completions = 0, arrived = 0, changes = 0, atomic_writes = 0, word = 0, wrong_bytes = 0,
           failures = 0, failed_number = 0;
  Failure failure{};

 private:
  bool chance(double of) { return of > 0 && std::uniform_real_distribution<>(0, 1)(random_) < of; }
  bool is_that(uint64_t number, const ArrivedPiece& piece) const {
    const PacketRequest& sent = peer->posted[number];
    if (sent.kind != piece.kind || (piece.ends && sent.length != piece.bytes.size())) return false;
    for (size_t i = 0; i < piece.bytes.size(); ++i)
      if (piece.bytes[i] != byte_of(number, i)) return false;
    return true;
  }

  std::mt19937_64& random_;
  const LinkFaults& faults_;
  std::vector<uint32_t> read_;  // bytes that have come, by request
  uint64_t atomics_ = 0, added_ = 0;
  uint64_t next_ = 0, next_atomic_write_ = 0;  // of the peer's requests
  uint32_t came_ = 0;
};

class FakeLink {
 public:
  // The ends begin at these PSNs. Their options are alike.
  FakeLink(uint64_t seed, const RequesterOptions& options, uint32_t psn_a, uint32_t psn_b, uint32_t resources,
           const LinkFaults& faults)
      : random(seed), faults_(faults) {
    const uint32_t psns[] = {psn_a, psn_b};
    for (int i = 0; i < 2; ++i) {
      RequesterOptions requester = options;
      requester.first_psn = psns[i];
      ends[i] = std::make_unique<FakeEnd>(
          requester, ResponderOptions{options.connection, psns[1 - i], resources}, random, faults_);
      ends[i]->is_unreliable = !options.connection.reliable;
    }
    ends[0]->peer = ends[1].get();
    ends[1]->peer = ends[0].get();
  }

  // Until nothing moves any more. False: not within `steps`.
  bool run(int steps = 1'000'000) {
    while (steps-- > 0) {
      for (int i = 0; i < 2; ++i) send_all(i);
      int64_t next = in_flight_.empty() ? kNoTimer : in_flight_.top().at;
      for (auto& end : ends) next = std::min(next, end->requester.timer());
      if (next == kNoTimer) return true;
      now = std::max(now, next);
      while (!in_flight_.empty() && in_flight_.top().at <= now) {
        const Flying flying = in_flight_.top();
        in_flight_.pop();
        deliver(flying);
      }
      for (auto& end : ends)
        if (end->requester.timer() <= now) end->requester.on_timer(now);
    }
    return false;
  }

  std::mt19937_64 random;
  std::unique_ptr<FakeEnd> ends[2];
  int64_t now = 0;
  uint64_t lost = 0, damaged = 0, packets = 0;

 private:
  struct Flying {
    int64_t at;
    uint64_t order;
    int to;
    std::vector<uint8_t> bytes;
    bool operator<(const Flying& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  bool chance(double of) { return of > 0 && std::uniform_real_distribution<>(0, 1)(random) < of; }

  static roce::Ipv4Flow flow_to(int to) {
    const auto last = static_cast<uint8_t>(to);
    return {{10, 0, 0, static_cast<uint8_t>(1 - last)}, {10, 0, 0, last}, 0xc000, roce::kUdpPort};
  }

  void send_all(int from) {
    FakeEnd& end = *ends[from];
    if (chance(faults_.slow)) {
      in_flight_.push({now + 1 + static_cast<int64_t>(random() % 300'000), order_++, from, {}});
      return;
    }
    while (end.responder.next_packet(&out_) || end.requester.next_packet(now, &out_)) {
      std::vector<uint8_t> bytes(roce::packet_size(out_.packet) + roce::kIcrcSize);
      const size_t size = roce::write(out_.packet, bytes);
      roce::put_icrc(&bytes[size], roce::icrc(flow_to(1 - from), std::span(bytes).first(size)));
      ++packets;
      for (int copies = chance(faults_.repeat) ? 2 : 1; copies > 0; --copies) {
        if (chance(faults_.loss)) {
          ++lost;
          continue;
        }
        std::vector<uint8_t> copy = bytes;
        if (chance(faults_.damage)) copy[random() % copy.size()] ^= static_cast<uint8_t>(1 + random() % 255);
        int64_t delay = faults_.delay;
        if (chance(faults_.reorder)) delay += static_cast<int64_t>(random() % 100'000);
        in_flight_.push({now + delay, order_++, 1 - from, std::move(copy)});
      }
    }
  }

  void deliver(const Flying& flying) {
    if (flying.bytes.empty()) return;  // its end sends now
    const auto packet_bytes = std::span(flying.bytes).first(flying.bytes.size() - roce::kIcrcSize);
    const uint32_t found = roce::get_icrc(&flying.bytes[packet_bytes.size()]);
    roce::Packet packet;
    if (roce::icrc(flow_to(flying.to), packet_bytes) != found ||
        roce::parse(flying.bytes, &packet) != roce::Parsed::kPacket) {
      ++damaged;
      return;
    }
    ends[flying.to]->requester.on_packet(packet, now);
    ends[flying.to]->responder.on_packet(packet);
  }

  const LinkFaults faults_;
  std::priority_queue<Flying> in_flight_;
  uint64_t order_ = 0;
  OwnedOutgoingPacket out_;
};

}  // namespace verbena::packets
