// SPDX-License-Identifier: BSD-2-Clause
//
// The responder packet by packet: what it takes, and what it answers.
#include "engine/packets/responder_machine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "roce/syndrome.h"

namespace verbena::packets {
namespace {

using roce::PacketType;
using roce::TransportKind;

struct PlayedResponder final : ResponderHost {
  explicit PlayedResponder(bool is_rc = true)
      : reliable(is_rc), machine({{.reliable = is_rc}, 100, 2}, *this) {}

  Verdict take(const ArrivedPiece& piece) override {
    if (verdict != Verdict::kDone) return verdict;
    log += (piece.kind == Kind::kSend ? "send " : "write ") + std::to_string(piece.offset) + "+" +
           std::to_string(piece.bytes.size()) + (piece.ends ? " end " : " ");
    return Verdict::kDone;
  }
  Verdict check_read(const ArrivedPiece&) override { return verdict; }
  Verdict fetch(const ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) override {
    log += "fetch " + std::to_string(read.remote_address + offset) + "+" + std::to_string(to.size()) + " ";
    return fetch_verdict;
  }
  Verdict change(const ArrivedPiece& atomic, uint64_t* before) override {
    if (atomic.kind == Kind::kAtomicWrite) {
      log += "atomic write " + std::to_string(atomic.bytes.size()) + " ";
      return verdict;
    }
    *before = word;
    word += atomic.compare_add;
    return verdict;
  }
  uint8_t rnr_timer() override { return 9; }
  void abandon() override { log += "abandon "; }

  void get(PacketType type, uint32_t psn, uint32_t size, uint32_t length = 0) {
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(reliable ? TransportKind::kRc : TransportKind::kUc, type);
    packet.bth.psn = psn;
    packet.bth.ack_requested = true;
    packet.reth = {0, 1, length != 0 ? length : size};
    packet.atomic.swap_add = 5;
    packet.payload = {bytes.data(), size};
    machine.on_packet(packet);
  }
  void read(uint32_t psn, uint64_t address, uint32_t length) {
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(TransportKind::kRc, PacketType::kReadRequest);
    packet.bth.psn = psn;
    packet.reth = {address, 1, length};
    machine.on_packet(packet);
  }
  // The answers that are due: type, PSN, syndrome.
  std::string answers() {
    std::string text;
    OwnedOutgoingPacket out;
    while (machine.next_packet(&out)) {
      const auto type = static_cast<PacketType>(out.packet.bth.opcode & 0x1f);
      const std::string psn = std::to_string(out.packet.bth.psn);
      const uint8_t syndrome = out.packet.aeth.syndrome;
      if (type == PacketType::kAtomicAcknowledge)
        text += "atomic " + psn + " before " + std::to_string(out.packet.atomic_ack.before);
      else if (type != PacketType::kAcknowledge)
        text += "response " + psn + " of " + std::to_string(out.packet.payload.size());
      else if (roce::kind_of(syndrome) == roce::SyndromeKind::kAck)
        text += "ack " + psn + " msn " + std::to_string(out.packet.aeth.msn);
      else
        text += (roce::kind_of(syndrome) == roce::SyndromeKind::kNak ? "nak " : "rnr ") + psn + " value " +
                std::to_string(roce::value_of(syndrome));
      text += "; ";
    }
    return text;
  }

  bool reliable;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(4096);
  Verdict verdict = Verdict::kDone, fetch_verdict = Verdict::kDone;
  uint64_t word = 1000;
  ResponderMachine machine;
  std::string log;
};

TEST(RoceResponder, PutsAcknowledgementsTogether) {
  PlayedResponder responder;
  for (uint32_t psn = 100; psn < 103; ++psn) responder.get(PacketType::kSendOnly, psn, 8);
  EXPECT_EQ(responder.answers(), "ack 102 msn 3; ");
  EXPECT_EQ(responder.answers(), "");
}

TEST(RoceResponder, SendsOneNakForAGap) {
  PlayedResponder responder;
  EXPECT_FALSE(responder.machine.is_nak_due());
  responder.get(PacketType::kSendOnly, 101, 8);
  EXPECT_TRUE(responder.machine.is_nak_due());
  responder.get(PacketType::kSendOnly, 102, 8);
  EXPECT_EQ(responder.answers(), "nak 100 value 0; ");
  EXPECT_FALSE(responder.machine.is_nak_due());
  responder.get(PacketType::kSendOnly, 100, 8);
  EXPECT_FALSE(responder.machine.is_nak_due());
  EXPECT_EQ(responder.answers(), "ack 100 msn 1; ");
  responder.get(PacketType::kSendOnly, 105, 8);
  EXPECT_EQ(responder.answers(), "nak 101 value 0; ");
  EXPECT_EQ(responder.log, "send 0+8 end ");
}

// Of packets that were marked on the way.
TEST(RoceResponder, TellsOfCongestionOnceIn50Microseconds) {
  PlayedResponder responder;
  OwnedOutgoingPacket out;
  for (const int64_t at : {0, 49'999, 50'000}) {
    responder.machine.on_mark(at);
    ASSERT_EQ(responder.machine.next_packet(&out), at != 49'999);
    if (at == 49'999) continue;
    EXPECT_EQ(out.packet.bth.opcode, roce::kCnpOpcode);
    EXPECT_TRUE(out.packet.bth.becn);
    EXPECT_EQ(out.packet.payload.size(), 16u);
  }
  responder.machine.on_mark(100'000);
  responder.get(PacketType::kSendOnly, 100, 8);
  ASSERT_TRUE(responder.machine.next_packet(&out));
  EXPECT_EQ(out.packet.bth.opcode, roce::kCnpOpcode);
  EXPECT_EQ(responder.answers(), "ack 100 msn 1; ");
}

TEST(RoceResponder, SaysWhenItIsNotReadyAndTakesThePacketAgain) {
  PlayedResponder responder;
  responder.verdict = Verdict::kRnr;
  responder.get(PacketType::kSendOnly, 100, 8);
  responder.get(PacketType::kSendOnly, 101, 8);
  EXPECT_EQ(responder.answers(), "rnr 100 value 9; ");
  responder.verdict = Verdict::kDone;
  responder.get(PacketType::kSendOnly, 100, 8);
  EXPECT_EQ(responder.answers(), "ack 100 msn 1; ");
}

TEST(RoceResponder, AcknowledgesWhatComesAgainAndDoesNothing) {
  PlayedResponder responder;
  responder.get(PacketType::kSendOnly, 100, 8);
  responder.get(PacketType::kWriteOnly, 101, 8);
  responder.answers();
  responder.get(PacketType::kSendOnly, 100, 8);
  EXPECT_EQ(responder.answers(), "ack 101 msn 2; ");
  EXPECT_EQ(responder.log, "send 0+8 end write 0+8 end ");
}

TEST(RoceResponder, AnswersAReadFromWhereverItIsAskedAgain) {
  PlayedResponder responder;
  responder.read(100, 5000, 3000);
  EXPECT_EQ(responder.answers(), "response 100 of 1024; response 101 of 1024; response 102 of 952; ");
  EXPECT_EQ(responder.machine.expected_psn(), 103u);
  responder.read(102, 7048, 952);
  EXPECT_EQ(responder.answers(), "response 102 of 952; ");
  responder.read(102, 7048, 1952);  // more than there was
  EXPECT_EQ(responder.answers(), "");
}

TEST(RoceResponder, AnswersAnAtomicAgainFromItsResult) {
  PlayedResponder responder;
  for (uint32_t psn : {100u, 101u, 102u}) {
    responder.get(PacketType::kFetchAdd, psn, 0);
    EXPECT_EQ(responder.answers(),
              "atomic " + std::to_string(psn) + " before " + std::to_string(1000 + 5 * (psn - 100)) + "; ");
  }
  responder.get(PacketType::kFetchAdd, 102, 0);
  EXPECT_EQ(responder.answers(), "atomic 102 before 1010; ");
  responder.get(PacketType::kFetchAdd, 100, 0);  // two are kept
  EXPECT_EQ(responder.answers(), "");
  EXPECT_EQ(responder.word, 1015u);
}

TEST(RoceResponder, CarriesOutAnAtomicWriteOnceAndAnswersItAgain) {
  PlayedResponder responder;
  for (int i = 0; i < 2; ++i) {
    responder.get(PacketType::kAtomicWrite, 100, 8);
    EXPECT_EQ(responder.answers(), "response 100 of 0; ");
  }
  EXPECT_EQ(responder.log, "atomic write 8 ");
  responder.get(PacketType::kFetchAdd, 101, 0);
  EXPECT_EQ(responder.answers(), "atomic 101 before 1000; ");
  responder.get(PacketType::kAtomicWrite, 102, 8);
  EXPECT_EQ(responder.answers(), "response 102 of 0; ");
  EXPECT_EQ(responder.machine.expected_psn(), 103u);
}

TEST(RoceResponder, RefusesAnAtomicWriteOfAnotherLength) {
  for (const auto& [size, length] : {std::pair{7u, 8u}, {8u, 16u}, {16u, 16u}, {4u, 4u}}) {
    PlayedResponder responder;
    responder.get(PacketType::kAtomicWrite, 100, size, length);
    EXPECT_EQ(responder.answers(), "nak 100 value 1; ") << size;
    EXPECT_EQ(responder.log, "") << size;
  }
}

TEST(RoceResponder, RefusesMoreReadsThanItsResources) {
  PlayedResponder responder;
  for (uint32_t psn : {100u, 101u, 102u}) responder.read(psn, 0, 8);
  EXPECT_EQ(responder.answers(), "response 100 of 8; response 101 of 8; nak 102 value 1; ");
  EXPECT_TRUE(responder.machine.has_failed());
}

TEST(RoceResponder, DoesNotCountRepeatedAnswersAgainstNewReads) {
  PlayedResponder responder;
  for (uint32_t psn : {100u, 101u}) responder.read(psn, 0, 8);
  responder.answers();
  for (uint32_t psn : {100u, 101u, 102u}) responder.read(psn, 0, 8);  // the answers were late
  EXPECT_EQ(responder.answers(), "response 101 of 8; response 102 of 8; ");
}

TEST(RoceResponder, AnswersInTheOrderOfTheRequests) {
  PlayedResponder responder;
  responder.get(PacketType::kSendOnly, 100, 8);
  responder.read(101, 0, 8);
  responder.get(PacketType::kSendOnly, 102, 8);
  responder.get(PacketType::kSendOnly, 103, 8);
  EXPECT_EQ(responder.answers(), "ack 100 msn 1; response 101 of 8; ack 103 msn 4; ");
}

TEST(RoceResponder, RefusesPacketsThatDoNotFollow) {
  const struct {
    PacketType first;
    uint32_t first_size, length;
    PacketType second;
    uint32_t second_size;
  } kCases[] = {
      {PacketType::kSendFirst, 1024, 0, PacketType::kSendOnly, 8},       // begins in a message
      {PacketType::kSendFirst, 1024, 0, PacketType::kWriteLast, 8},      // another operation
      {PacketType::kSendFirst, 1024, 0, PacketType::kSendMiddle, 1023},  // not of the MTU
      {PacketType::kSendFirst, 1024, 0, PacketType::kSendLast, 0},       // an empty end
      {PacketType::kSendFirst, 1024, 0, PacketType::kReadRequest, 0},
      {PacketType::kWriteFirst, 1024, 2000, PacketType::kWriteLast, 975},  // less than the RETH says
      {PacketType::kWriteFirst, 1024, 2000, PacketType::kWriteLast, 977},
      {PacketType::kWriteFirst, 1024, 2000, PacketType::kWriteMiddle, 1024},
      {PacketType::kSendOnly, 8, 0, PacketType::kSendLast, 8},  // nothing has begun
      {PacketType::kSendOnly, 8, 0, PacketType::kSendOnly, 1025},
  };
  for (const auto& one : kCases) {
    PlayedResponder responder;
    responder.get(one.first, 100, one.first_size, one.length);
    EXPECT_EQ(responder.answers(),
              "ack 100 msn " + std::string(one.first == PacketType::kSendOnly ? "1; " : "0; "));
    responder.get(one.second, 101, one.second_size);
    EXPECT_EQ(responder.answers(), "nak 101 value 1; ")
        << static_cast<int>(one.second) << " " << one.second_size;
    EXPECT_TRUE(responder.machine.has_failed());
  }
}

TEST(RoceResponder, SaysWhyItRefuses) {
  const struct {
    Verdict verdict;
    std::string nak;
  } kCases[] = {{Verdict::kInvalidRequest, "nak 100 value 1; "},
                {Verdict::kRemoteAccess, "nak 100 value 2; "},
                {Verdict::kRemoteOperation, "nak 100 value 3; "},
                {Verdict::kSilence, ""}};
  for (const auto& one : kCases) {
    PlayedResponder responder;
    responder.verdict = one.verdict;
    responder.get(PacketType::kSendOnly, 100, 8);
    EXPECT_EQ(responder.answers(), one.nak);
    responder.verdict = Verdict::kDone;
    responder.get(PacketType::kSendOnly, 100, 8);
    EXPECT_EQ(responder.log, "") << "it goes on after an error";
  }
}

TEST(RoceResponder, RefusesAReadWhoseMemoryGoesAway) {
  PlayedResponder responder;
  responder.read(100, 0, 3000);
  responder.fetch_verdict = Verdict::kRemoteAccess;
  EXPECT_EQ(responder.answers(), "nak 100 value 2; ");
}

TEST(RoceResponder, OfUcDropsAMessageWithAGapAndTakesTheNext) {
  PlayedResponder responder(false);
  responder.get(PacketType::kSendFirst, 100, 1024);
  responder.get(PacketType::kSendLast, 102, 8);
  responder.get(PacketType::kSendMiddle, 103, 1024);
  responder.get(PacketType::kSendOnly, 104, 9);
  EXPECT_EQ(responder.log, "send 0+1024 abandon send 0+9 end ");
  EXPECT_EQ(responder.answers(), "");
}

}  // namespace
}  // namespace verbena::packets
