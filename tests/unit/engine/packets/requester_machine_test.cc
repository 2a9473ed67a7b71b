// SPDX-License-Identifier: BSD-2-Clause
//
// The requester packet by packet: what it sends, when, and what it makes of the answers.
#include "engine/packets/requester_machine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "roce/syndrome.h"

namespace verbena::packets {
namespace {

using roce::PacketType;
using roce::TransportKind;

constexpr int64_t kTimeout = 1'000'000;

struct Sent {
  PacketType type;
  uint32_t psn;
  size_t payload;
  bool asks;
  roce::Packet packet;
};

struct PlayedRequester final : RequesterHost {
  explicit PlayedRequester(const RequesterOptions& options = {.first_psn = 100,
                                                              .timeout_ns = kTimeout,
                                                              .retry_cnt = 2})
      : machine(options, *this) {}

  bool gather(uint64_t number, uint32_t, std::span<uint8_t>) override { return number != without_memory; }
  bool scatter(uint64_t, uint32_t offset, std::span<const uint8_t> from) override {
    log += "scatter " + std::to_string(offset) + "+" + std::to_string(from.size()) + " ";
    return true;
  }
  bool atomic_result(uint64_t, uint64_t before) override {
    log += "before " + std::to_string(before) + " ";
    return true;
  }
  void completed(uint64_t number) override { log += "done " + std::to_string(number) + " "; }
  void failed(uint64_t number, Failure why) override {
    log += "failed " + std::to_string(number) + " for " + std::to_string(static_cast<int>(why)) + " ";
  }

  void post(uint64_t number, Kind kind, uint32_t length) {
    PacketRequest request;
    request.number = number;
    request.kind = kind;
    request.length = length;
    request.remote_address = 0x10000;
    ASSERT_TRUE(machine.post(request));
  }
  std::vector<Sent> send(int64_t now = 0) {
    std::vector<Sent> all;
    OwnedOutgoingPacket out;
    while (machine.next_packet(now, &out)) {
      const auto type = static_cast<PacketType>(out.packet.bth.opcode & 0x1f);
      all.push_back(
          {type, out.packet.bth.psn, out.packet.payload.size(), out.packet.bth.ack_requested, out.packet});
    }
    return all;
  }
  void answer(uint32_t psn, uint8_t syndrome, int64_t now = 0) {
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(TransportKind::kRc, PacketType::kAcknowledge);
    packet.bth.psn = psn;
    packet.aeth = {syndrome, 0};
    machine.on_packet(packet, now);
  }
  void acknowledge(uint32_t psn, int64_t now = 0) { answer(psn, roce::ack_syndrome(), now); }
  void respond(PacketType type, uint32_t psn, size_t size) {
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(TransportKind::kRc, type);
    packet.bth.psn = psn;
    packet.aeth = {roce::ack_syndrome(), 0};
    packet.atomic_ack = {77};
    packet.payload = {bytes.data(), size};
    machine.on_packet(packet, 0);
  }

  std::vector<uint8_t> bytes = std::vector<uint8_t>(4096);
  uint64_t without_memory = UINT64_MAX;
  RequesterMachine machine;
  std::string log;
};

std::vector<uint32_t> psns_of(const std::vector<Sent>& all) {
  std::vector<uint32_t> psns;
  for (const Sent& sent : all) psns.push_back(sent.psn);
  return psns;
}
using Psns = std::vector<uint32_t>;

TEST(RoceRequester, BeginsWithThePsnGivenLater) {
  PlayedRequester requester;
  requester.machine.begin(0xffffff);
  requester.post(0, Kind::kSend, 2048);
  EXPECT_EQ(psns_of(requester.send()), (Psns{0xffffff, 0}));
}

TEST(RoceRequester, SendsAPacketThatTheNetworkDidNotTake) {
  PlayedRequester requester;
  requester.post(0, Kind::kSend, 3072);
  OwnedOutgoingPacket out;
  ASSERT_TRUE(requester.machine.next_packet(0, &out));
  const auto before = requester.machine.position();
  ASSERT_TRUE(requester.machine.next_packet(0, &out));
  requester.machine.take_back(before);
  EXPECT_EQ(psns_of(requester.send()), (Psns{101, 102}));
  requester.acknowledge(102);
  EXPECT_EQ(requester.log, "done 0 ");
}

TEST(RoceRequester, SendsUcPacketsThatTheNetworkDidNotTake) {
  PlayedRequester requester({.connection = {.reliable = false}, .first_psn = 100});
  requester.post(0, Kind::kSend, 1024);
  requester.post(1, Kind::kSend, 2048);
  OwnedOutgoingPacket out;
  ASSERT_TRUE(requester.machine.next_packet(0, &out));
  ASSERT_TRUE(requester.machine.next_packet(0, &out));
  const auto before = requester.machine.position();
  ASSERT_TRUE(requester.machine.next_packet(0, &out));
  EXPECT_TRUE(requester.machine.is_idle());
  requester.machine.take_back(before);
  EXPECT_FALSE(requester.machine.is_idle());
  EXPECT_EQ(psns_of(requester.send()), (Psns{102}));
  EXPECT_EQ(requester.log, "done 0 done 1 done 1 ");  // the first time did not count
  EXPECT_TRUE(requester.machine.is_idle());
}

TEST(RoceRequester, NamesTheSrqInEachPacketOfXrc) {
  PlayedRequester requester({.connection = {.is_extended = true}, .first_psn = 5});
  PacketRequest request;
  request.length = 2048;
  request.srqn = 0x123;
  ASSERT_TRUE(requester.machine.post(request));
  const auto sent = requester.send();
  ASSERT_EQ(sent.size(), 2u);
  for (const Sent& each : sent) {
    EXPECT_EQ(each.packet.bth.opcode >> 5, static_cast<int>(TransportKind::kXrc));
    EXPECT_EQ(each.packet.xrceth.srqn, 0x123u);
  }
  requester.acknowledge(6);  // of RC: another transport
  EXPECT_EQ(requester.log, "");
  roce::Packet answer;
  answer.bth.opcode = roce::opcode_of(TransportKind::kXrc, PacketType::kAcknowledge);
  answer.bth.psn = 6;
  answer.aeth = {roce::ack_syndrome(), 1};
  requester.machine.on_packet(answer, 0);
  EXPECT_EQ(requester.log, "done 0 ");
}

TEST(RoceRequester, DividesAMessageByTheMtu) {
  for (uint32_t mtu : {256u, 512u, 1024u, 2048u, 4096u}) {
    PlayedRequester requester({.connection = {.mtu = mtu}, .first_psn = 7});
    requester.post(0, Kind::kWrite, 2 * mtu + 1);
    const auto sent = requester.send();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[0].type, PacketType::kWriteFirst);
    EXPECT_EQ(sent[0].packet.reth.length, 2 * mtu + 1);
    EXPECT_EQ(sent[0].payload, mtu);
    EXPECT_EQ(sent[1].type, PacketType::kWriteMiddle);
    EXPECT_EQ(sent[2].type, PacketType::kWriteLast);
    EXPECT_EQ(sent[2].payload, 1u);
    EXPECT_TRUE(sent[2].asks);
  }
}

TEST(RoceRequester, NumbersPacketsThroughTheEndOfThePsns) {
  PlayedRequester requester({.first_psn = 0xfffffe});
  requester.post(0, Kind::kSend, 3000);
  requester.post(1, Kind::kSend, 0);
  EXPECT_EQ(psns_of(requester.send()), (Psns{0xfffffe, 0xffffff, 0, 1}));
  requester.acknowledge(0);
  EXPECT_EQ(requester.log, "done 0 ");
  requester.acknowledge(1);
  EXPECT_TRUE(requester.machine.is_idle());
}

TEST(RoceRequester, HasNoMorePacketsInFlightThanItsWindow) {
  PlayedRequester requester({.first_psn = 0, .window = 4});
  requester.post(0, Kind::kSend, 10 * 1024);
  const auto sent = requester.send();
  EXPECT_EQ(psns_of(sent), (Psns{0, 1, 2, 3}));
  EXPECT_TRUE(sent.back().asks);
  requester.acknowledge(1);
  EXPECT_EQ(psns_of(requester.send()), (Psns{4, 5}));
}

TEST(RoceRequester, GoesBackAfterASequenceNak) {
  PlayedRequester requester;
  requester.post(0, Kind::kSend, 100);
  requester.post(1, Kind::kSend, 3000);
  EXPECT_EQ(psns_of(requester.send()), (Psns{100, 101, 102, 103}));
  requester.answer(102, roce::nak_syndrome(roce::NakCode::kSequence));
  EXPECT_EQ(requester.log, "done 0 ");
  const auto again = requester.send();
  EXPECT_EQ(psns_of(again), (Psns{102, 103}));
  EXPECT_EQ(again[0].type, PacketType::kSendMiddle);
}

TEST(RoceRequester, TriesRetryCntTimesAndThenFails) {
  PlayedRequester requester;
  requester.post(5, Kind::kSend, 1);
  int64_t now = 10;
  for (int tries = 0; tries < 3; ++tries) {
    EXPECT_EQ(requester.send(now).size(), 1u) << tries;
    EXPECT_EQ(requester.machine.timer(), now + kTimeout) << tries;
    requester.machine.on_timer(now + kTimeout - 1);
    EXPECT_EQ(requester.send(now).size(), 0u);
    now += kTimeout;
    requester.machine.on_timer(now);
  }
  EXPECT_EQ(requester.log, "failed 5 for " + std::to_string(static_cast<int>(Failure::kRetryExceeded)) + " ");
  EXPECT_EQ(requester.machine.timer(), kNoTimer);
}

TEST(RoceRequester, WithoutTimeoutWaitsForever) {
  PlayedRequester requester({.first_psn = 0});
  requester.post(0, Kind::kSend, 1);
  requester.send();
  EXPECT_EQ(requester.machine.timer(), kNoTimer);
}

TEST(RoceRequester, CountsNoRetryForPacketsBehindAnRnrNak) {
  PlayedRequester requester({.first_psn = 0, .retry_cnt = 1, .rnr_retry = 7});
  requester.post(0, Kind::kSend, 8);
  requester.post(1, Kind::kSend, 8);
  int64_t now = 0;
  for (int round = 0; round < 20; ++round, now += 10'000'000) {
    requester.machine.on_timer(now);
    EXPECT_EQ(psns_of(requester.send(now)), (Psns{0, 1}));
    requester.answer(0, roce::rnr_syndrome(14), now);                        // 1.28 ms
    requester.answer(0, roce::nak_syndrome(roce::NakCode::kSequence), now);  // as rxe does
    EXPECT_TRUE(requester.send(now).empty());
  }
  EXPECT_EQ(requester.log, "");
  // A second one is for packets that were sent since, and there is one retry.
  requester.answer(0, roce::nak_syndrome(roce::NakCode::kSequence), now);
  EXPECT_EQ(requester.log, "");
  requester.answer(0, roce::nak_syndrome(roce::NakCode::kSequence), now);
  EXPECT_NE(requester.log, "");
}

TEST(RoceRequester, WaitsAsLongAsAnRnrNakSays) {
  PlayedRequester requester({.first_psn = 0, .rnr_retry = 1});
  requester.post(0, Kind::kSend, 1);
  requester.send();
  requester.answer(0, roce::rnr_syndrome(14), 500);  // 1.28 ms
  EXPECT_EQ(requester.send().size(), 0u);
  EXPECT_EQ(requester.machine.timer(), 500 + 1'280'000);
  requester.machine.on_timer(500 + 1'280'000);
  EXPECT_EQ(requester.send().size(), 1u);
  requester.answer(0, roce::rnr_syndrome(14), 500);
  EXPECT_EQ(requester.log,
            "failed 0 for " + std::to_string(static_cast<int>(Failure::kRnrRetryExceeded)) + " ");
}

TEST(RoceRequester, FailsForTheReasonThatANakNames) {
  const struct {
    roce::NakCode code;
    Failure failure;
  } kCases[] = {{roce::NakCode::kInvalidRequest, Failure::kInvalidRequest},
                {roce::NakCode::kRemoteAccess, Failure::kRemoteAccess},
                {roce::NakCode::kRemoteOperation, Failure::kRemoteOperation}};
  for (const auto& one : kCases) {
    PlayedRequester requester;
    requester.post(0, Kind::kSend, 1);
    requester.post(1, Kind::kSend, 1);
    requester.send();
    requester.answer(101, roce::nak_syndrome(one.code));
    EXPECT_EQ(requester.log, "done 0 failed 1 for " + std::to_string(static_cast<int>(one.failure)) + " ");
    EXPECT_FALSE(requester.machine.post({}));
  }
}

TEST(RoceRequester, AsksAgainForTheRestOfAResponse) {
  PlayedRequester requester;
  requester.post(0, Kind::kRead, 3000);
  auto sent = requester.send();
  ASSERT_EQ(psns_of(sent), (Psns{100}));
  requester.respond(PacketType::kReadResponseFirst, 100, 1024);
  requester.respond(PacketType::kReadResponseLast, 102, 952);  // 101 is lost
  sent = requester.send();
  ASSERT_EQ(psns_of(sent), (Psns{101}));
  EXPECT_EQ(sent[0].packet.reth.address, 0x10000u + 1024);
  EXPECT_EQ(sent[0].packet.reth.length, 3000u - 1024);
  // rxe names it Middle, others First.
  requester.respond(PacketType::kReadResponseMiddle, 101, 1024);
  requester.respond(PacketType::kReadResponseLast, 102, 952);
  EXPECT_EQ(requester.log, "scatter 0+1024 scatter 1024+1024 scatter 2048+952 done 0 ");
}

TEST(RoceRequester, TakesAnAcknowledgementBehindAReadForALostResponse) {
  PlayedRequester requester;
  requester.post(0, Kind::kRead, 8);
  requester.post(1, Kind::kSend, 8);
  requester.send();
  requester.acknowledge(101);
  EXPECT_EQ(requester.log, "");
  EXPECT_EQ(psns_of(requester.send()), (Psns{100, 101}));
  requester.acknowledge(101);  // late: it does not go back a second time
  EXPECT_EQ(requester.send().size(), 0u);
}

TEST(RoceRequester, RefusesAResponseOfAnotherLength) {
  PlayedRequester requester;
  requester.post(0, Kind::kRead, 3000);
  requester.send();
  requester.respond(PacketType::kReadResponseFirst, 100, 1000);
  EXPECT_EQ(requester.log, "failed 0 for " + std::to_string(static_cast<int>(Failure::kBadResponse)) + " ");
}

TEST(RoceRequester, IgnoresWhatItHasNotAskedFor) {
  PlayedRequester requester;
  requester.post(0, Kind::kSend, 8);
  requester.send();
  requester.acknowledge(99);
  requester.acknowledge(101);
  requester.answer(101, roce::nak_syndrome(roce::NakCode::kRemoteAccess));
  requester.respond(PacketType::kReadResponseOnly, 100, 8);
  requester.respond(PacketType::kAtomicAcknowledge, 100, 0);
  EXPECT_EQ(requester.log, "");
  requester.acknowledge(100);
  EXPECT_EQ(requester.log, "done 0 ");
}

TEST(RoceRequester, HasNoMoreResponsesAwaitedThanMaxRdAtomic) {
  PlayedRequester requester({.first_psn = 0, .max_rd_atomic = 2});
  for (uint64_t i = 0; i < 3; ++i) requester.post(i, Kind::kFetchAdd, 8);
  EXPECT_EQ(psns_of(requester.send()), (Psns{0, 1}));
  requester.respond(PacketType::kAtomicAcknowledge, 0, 0);
  EXPECT_EQ(psns_of(requester.send()), (Psns{2}));
  EXPECT_EQ(requester.log, "before 77 done 0 ");
}

TEST(RoceRequester, AnAtomicWriteEndsWithAResponseWithoutBytes) {
  PlayedRequester requester({.first_psn = 0, .max_rd_atomic = 1});
  for (uint64_t i = 0; i < 2; ++i) requester.post(i, Kind::kAtomicWrite, 8);
  const auto sent = requester.send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].packet.bth.opcode, 0x1d);
  EXPECT_EQ(sent[0].packet.reth.length, 8u);
  requester.respond(PacketType::kAtomicAcknowledge, 0, 0);  // of another operation
  EXPECT_EQ(requester.log, "");
  requester.respond(PacketType::kReadResponseOnly, 0, 0);
  EXPECT_EQ(requester.log, "done 0 ");
  EXPECT_EQ(psns_of(requester.send()), (Psns{1}));
  requester.respond(PacketType::kReadResponseOnly, 1, 8);
  EXPECT_EQ(requester.log, "done 0 failed 1 for 1 ");
}

TEST(RoceRequester, HoldsAFencedRequestUntilTheResponsesAreThere) {
  PlayedRequester requester;
  requester.post(0, Kind::kRead, 8);
  PacketRequest fenced;
  fenced.number = 1;
  fenced.fenced = true;
  requester.machine.post(fenced);
  EXPECT_EQ(requester.send().size(), 1u);
  requester.respond(PacketType::kReadResponseOnly, 100, 8);
  EXPECT_EQ(requester.send().size(), 1u);
}

TEST(RoceRequester, FailsForItsOwnMemoryAfterTheRequestsBefore) {
  PlayedRequester requester;
  requester.without_memory = 1;
  requester.post(0, Kind::kSend, 8);
  requester.post(1, Kind::kSend, 8);
  EXPECT_EQ(requester.send().size(), 1u);
  EXPECT_EQ(requester.log, "");
  requester.acknowledge(100);
  requester.send();
  EXPECT_EQ(requester.log, "done 0 failed 1 for 0 ");
}

TEST(RoceRequester, OfUcCompletesWhatItHasSent) {
  PlayedRequester requester({.connection = {.reliable = false}, .first_psn = 0, .window = 1});
  requester.post(0, Kind::kSend, 3000);
  const auto sent = requester.send();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].packet.bth.opcode, 0x20);
  EXPECT_FALSE(sent[2].asks);
  EXPECT_EQ(requester.log, "done 0 ");
  EXPECT_EQ(requester.machine.room(0), 1u) << "what was sent is not in flight: nothing comes back";
}

// ---- probes ----

constexpr int64_t kLongTimeout = 100'000'000, kMicrosecond = 1000;

// A requester that has measured a round trip of 100 us, and has sent packets 101 to 110 at `now`.
struct ProbingRequester {
  ProbingRequester() {
    played.post(0, Kind::kWrite, 10);
    played.send(0);
    played.acknowledge(100, 100 * kMicrosecond);
    played.post(1, Kind::kWrite, 10 * 1024);
    played.send(now);
    played.log.clear();
  }
  // When nothing has come until then.
  std::vector<Sent> probe() {
    played.machine.on_timer(played.machine.timer());
    return played.send(now + 400 * kMicrosecond);
  }
  PlayedRequester played{{.first_psn = 100, .timeout_ns = kLongTimeout, .retry_cnt = 0}};
  RequesterMachine& machine = played.machine;
  const int64_t now = 100 * kMicrosecond, answered = now + 500 * kMicrosecond;
};

TEST(RoceRequester, SendsOnePacketAgainWhenNothingComesForSomeRoundTrips) {
  ProbingRequester requester;
  ASSERT_EQ(requester.machine.timer(), requester.now + 400 * kMicrosecond);
  const auto sent = requester.probe();
  EXPECT_EQ(psns_of(sent), (Psns{101}));
  EXPECT_TRUE(sent[0].asks);
}

// The acknowledgement of a window, or its last packet, is lost: on a short path that must not cost long.
TEST(RoceRequester, WaitsForTheLeastTimeOnAShortPath) {
  for (const auto& [kind, least] : {std::pair{Kind::kSend, 200}, {Kind::kWrite, 200}, {Kind::kRead, 1000}}) {
    PlayedRequester played({.first_psn = 100, .timeout_ns = kLongTimeout});
    played.post(0, Kind::kWrite, 10);
    played.send(0);
    played.acknowledge(100, 20 * kMicrosecond);
    played.post(1, kind, 10);
    played.send(20 * kMicrosecond);
    EXPECT_EQ(played.machine.timer(), (20 + least) * kMicrosecond);
  }
}

TEST(RoceRequester, SendsNothingAgainThatThePeerHas) {
  ProbingRequester requester;
  requester.probe();
  requester.played.acknowledge(110, requester.answered);
  EXPECT_EQ(requester.played.log, "done 1 ");
  EXPECT_TRUE(requester.played.send(requester.answered).empty());
  EXPECT_EQ(requester.machine.timer(), kNoTimer);
}

// The answer was on its way when the probe was sent.
TEST(RoceRequester, GoesOnWhereItWasIfThePeerIsSlow) {
  ProbingRequester requester;
  requester.probe();
  requester.played.acknowledge(105, requester.answered);
  requester.played.post(2, Kind::kWrite, 10);
  EXPECT_EQ(psns_of(requester.played.send(requester.answered)), (Psns{111}));
  EXPECT_EQ(requester.machine.packets_repeated(), 1u);
}

TEST(RoceRequester, SendsTheRestAgainIfThePeerHadNothing) {
  ProbingRequester requester;
  requester.probe();
  requester.played.acknowledge(101, requester.answered);
  EXPECT_EQ(psns_of(requester.played.send(requester.answered)),
            (Psns{102, 103, 104, 105, 106, 107, 108, 109, 110}));
}

// A probe is no retry: the timeout of the connection is as long as without, and retry_cnt is not touched.
TEST(RoceRequester, ProbesLessAndLessOftenUntilTheTimeout) {
  ProbingRequester requester;
  int probes = 0;
  for (int64_t at; (at = requester.machine.timer()) < requester.now + kLongTimeout; ++probes) {
    requester.machine.on_timer(at);
    ASSERT_EQ(requester.played.log, "");
    EXPECT_EQ(psns_of(requester.played.send(at)), (Psns{101}));
  }
  EXPECT_EQ(probes, 7);
  EXPECT_EQ(requester.machine.timer(), requester.now + kLongTimeout);
  requester.machine.on_timer(requester.now + kLongTimeout);
  EXPECT_EQ(requester.played.log, "failed 1 for 5 ");
}

TEST(RoceRequester, HasFewerPacketsInFlightAfterACnp) {
  PlayedRequester requester({.first_psn = 0, .window = 32, .first_window = 32, .timeout_ns = kTimeout});
  requester.post(0, Kind::kWrite, 200 * 1024);
  EXPECT_EQ(requester.send().size(), 32u);
  requester.machine.on_congestion(60 * kMicrosecond);
  requester.acknowledge(31, 60 * kMicrosecond);
  EXPECT_EQ(requester.send(60 * kMicrosecond).size(), 26u);
}

}  // namespace
}  // namespace verbena::packets
