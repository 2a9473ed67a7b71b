// SPDX-License-Identifier: BSD-2-Clause
//
// Any packets to the requester and the responder of a connection over packets, in any order, between requests
// and timers. No crash; bytes stay within their message and come once; requests complete in order; the
// number of answers is bounded.
#include <memory>
#include <vector>

#include "engine/packets/requester_machine.h"
#include "engine/packets/responder_machine.h"
#include "engine/rules/psn.h"
#include "input.h"
#include "roce/packet.h"

namespace verbena::fuzz {
namespace {

using namespace packets;

struct Ends final : RequesterHost, ResponderHost {
  explicit Ends(Input& given) : input(given) {}

  bool gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) override {
    require(offset + to.size() <= posted.at(number).length, "bytes are gathered from the message");
    return input.byte() != 0xfe;
  }
  bool scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) override {
    require(offset == come.at(number), "a response comes once and in order");
    come[number] += static_cast<uint32_t>(from.size());
    require(come[number] <= posted[number].length, "a response is not longer than asked");
    return input.byte() != 0xfe;
  }
  bool atomic_result(uint64_t number, uint64_t) override {
    require(brings_value(posted.at(number).kind), "the result is that of an atomic");
    return true;
  }
  void completed(uint64_t number) override {
    require(number == next++, "requests complete in order");
    require(posted[number].kind != Kind::kRead || come[number] == posted[number].length, "a READ is whole");
  }
  void failed(uint64_t number, Failure) override {
    require(number == next && !has_failed, "the first request fails, once");
    has_failed = true;
  }

  Verdict take(const ArrivedPiece& piece) override {
    const auto verdict = static_cast<Verdict>(input.below(24) < 18 ? 0 : input.below(6));
    require(piece.begins ? piece.offset == 0 : piece.offset == taken, "pieces follow each other");
    require(piece.kind != Kind::kWrite || piece.offset + piece.bytes.size() <= piece.length,
            "a WRITE stays within its length");
    if (verdict == Verdict::kDone) taken = piece.offset + static_cast<uint32_t>(piece.bytes.size());
    return verdict;
  }
  Verdict check_read(const ArrivedPiece&) override {
    return static_cast<Verdict>(input.below(24) < 20 ? 0 : 3);
  }
  Verdict fetch(const ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) override {
    require(uint64_t{offset} + to.size() <= read.length, "a READ stays within its length");
    return static_cast<Verdict>(input.below(24) < 22 ? 0 : 3);
  }
  Verdict change(const ArrivedPiece& atomic, uint64_t* before) override {
    require(atomic.kind != Kind::kAtomicWrite || atomic.bytes.size() == 8, "an ATOMIC WRITE has 8 bytes");
    *before = 1;
    return Verdict::kDone;
  }
  uint8_t rnr_timer() override { return input.byte(); }
  void abandon() override {}

  Input& input;
  std::vector<PacketRequest> posted;
  std::vector<uint32_t> come;
  uint64_t next = 0;
  uint32_t taken = 0;
  bool has_failed = false;
};

void send_all(RequesterMachine& requester, ResponderMachine& responder, int64_t now) {
  OwnedOutgoingPacket out;
  uint8_t bytes[roce::kMaxPacket];
  int count = 0;
  const auto check = [&] {
    require(out.packet.payload.size() <= 256, "no packet is longer than the MTU");
    require(roce::write(out.packet, bytes) != 0, "packets can be written");
    // Requests are 8 KiB at most, and READs here 64 KiB at most; both are sent again once at most for a
    // packet.
    require(++count < 100'000, "packets come to an end");
  };
  while (requester.next_packet(now, &out)) check();
  for (int most = 1000; most > 0 && responder.next_packet(&out); --most) check();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Ends ends(input);
  const uint8_t shape = input.byte();
  Connection connection;
  connection.reliable = (shape & 1) == 0;
  connection.mtu = 256;
  const uint32_t psn = (shape & 2) != 0 ? kPsnMask - 2 : 0;
  RequesterOptions options{connection, psn, 4u + (shape >> 4)};
  options.window = 1u + (shape >> 3);
  options.max_rd_atomic = 1u + (shape & 3);
  options.timeout_ns = 1000;
  RequesterMachine requester(options, ends);
  ResponderMachine responder({connection, psn, uint32_t{shape} & 3}, ends);
  std::vector<uint8_t> payload(300);
  uint32_t near = psn;
  for (int64_t now = 0; !input.empty(); ++now) {
    const uint8_t what = input.byte();
    if (what % 4 == 0) {
      PacketRequest request;
      request.number = ends.posted.size();
      request.kind = static_cast<Kind>(input.below(connection.reliable ? 6 : 2));
      request.length = request.kind >= Kind::kCompareSwap ? 8 : input.take<uint16_t>() % 8192;
      request.fenced = (what & 4) != 0;
      request.has_immediate = !brings_response(request.kind) && (what & 8) != 0;
      if (requester.post(request)) ends.posted.push_back(request), ends.come.push_back(0);
    } else if (what % 16 == 1) {
      now += input.take<uint16_t>();
      requester.on_timer(now);
      if ((what & 32) != 0) requester.on_congestion(now);
      if ((what & 64) != 0) responder.on_mark(now);
    } else {
      roce::Packet packet;
      packet.bth.opcode = input.byte();
      if (what % 2 == 0) near = responder.expected_psn();
      packet.bth.psn = psn_add(near, uint64_t{kPsnMask} + input.below(4));  // one before it, to two after it
      packet.bth.ack_requested = true;
      packet.aeth.syndrome = input.byte() & 0x7f;
      packet.reth = {0, 1, (what & 32) != 0 ? input.take<uint32_t>() : input.take<uint16_t>()};
      packet.payload = {payload.data(), (what & 64) != 0 ? 256u : input.take<uint16_t>() % 300u};
      responder.on_packet(packet);
      requester.on_packet(packet, now);
      near = psn_next(packet.bth.psn);
    }
    if ((what & 128) == 0) send_all(requester, responder, now);
  }
  return 0;
}

}  // namespace verbena::fuzz
