// SPDX-License-Identifier: BSD-2-Clause
//
//   roce_end OWN_ADDRESS PEER_ADDRESS       listens on TCP port 7471 for rxe_end
//
// The machines of emulator/engine/packets over an ordinary UDP socket.
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "adapter/clock.h"
#include "engine/packets/requester_machine.h"
#include "engine/packets/responder_machine.h"
#include "engine/rules/timers.h"
#include "roce/icrc.h"
#include "roce/packet.h"
#include "traffic.h"

namespace verbena::roce_test {
namespace {

using namespace packets;

constexpr uint32_t kQpn = 0x4711, kRkey = 0x1234, kPsn = 0xffffe0;
constexpr uint64_t kAddress = 0x7000'0000'0000;
constexpr uint16_t kSourcePort = 0xd000;

class End final : public RequesterHost, public ResponderHost {
 public:
  End(const Introduction& peer) : peer_(peer), memory(kMemory), read_(kMostBytes) {
    for (uint64_t at = 0; at < kReadableSize; ++at) memory[kReadable + at] = byte_of(kReadableBytes, at);
    Connection connection{true, kMtu, peer.qpn};
    RequesterOptions options{connection, kPsn, kInFlight};
    options.max_rd_atomic = kReadsInFlight;
    options.timeout_ns = ack_timeout_ns(14);
    requester = std::make_unique<RequesterMachine>(options, *this);
    responder =
        std::make_unique<ResponderMachine>(ResponderOptions{connection, peer.psn, kReadsInFlight}, *this);
  }

  void post() {
    for (; posted_ < kRequests; ++posted_) {
      const Step one = step(posted_);
      PacketRequest request;
      request.number = posted_;
      request.kind = one.what == What::kFetchAdd ? Kind::kFetchAdd : static_cast<Kind>(one.what);
      request.length = one.length;
      request.remote_address = peer_.address + one.offset;
      request.rkey = peer_.rkey;
      request.compare_add = 1;
      request.has_immediate = one.what == What::kSend && one.with_immediate;
      request.immediate = one.immediate;
      if (!requester->post(request)) return;
    }
  }
  bool is_done() const { return completed_ == kRequests && received_ == number_of_messages(What::kSend); }

  // ---- RequesterHost ----
  bool gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) override {
    for (size_t i = 0; i < to.size(); ++i) to[i] = byte_of(number, offset + i);
    return true;
  }
  bool scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) override {
    const uint64_t at = step(static_cast<uint32_t>(number)).offset - kReadable + offset;
    for (size_t i = 0; i < from.size(); ++i)
      require(from[i] == byte_of(kReadableBytes, at + i), "a READ brings the bytes", number);
    return true;
  }
  bool atomic_result(uint64_t number, uint64_t before) override {
    require(before == atomics_++, "an atomic brings what was there", number);
    return true;
  }
  void completed(uint64_t number) override {
    require(number == completed_++, "requests complete in order", number);
  }
  void failed(uint64_t number, Failure why) override {
    fprintf(stderr, "failure %d\n", static_cast<int>(why));
    fail("no request fails", number);
  }

  // ---- ResponderHost ----
  Verdict take(const ArrivedPiece& piece) override {
    if (piece.kind == Kind::kWrite) {
      if (!is_inside(piece)) return Verdict::kRemoteAccess;
      std::copy(piece.bytes.begin(), piece.bytes.end(),
                &memory[piece.remote_address - kAddress + piece.offset]);
      return Verdict::kDone;
    }
    if (piece.begins) {
      // Every tenth SEND finds no receive request at first.
      if (received_ % 10 == 9 && !refused_) return refused_ = true, Verdict::kRnr;
      refused_ = false;
      while (step(message_).what != What::kSend) ++message_;
    }
    for (size_t i = 0; i < piece.bytes.size(); ++i)
      require(piece.bytes[i] == byte_of(message_, piece.offset + i), "a SEND brings its bytes", message_);
    if (piece.ends) {
      const Step one = step(message_);
      require(piece.length == one.length, "a SEND has its length", message_);
      require(piece.has_immediate == one.with_immediate, "a SEND has an immediate or not", message_);
      if (one.with_immediate)
        require(piece.immediate == one.immediate, "a SEND brings its immediate", message_);
      ++message_;
      ++received_;
    }
    return Verdict::kDone;
  }
  Verdict check_read(const ArrivedPiece& read) override {
    return is_inside(read) ? Verdict::kDone : Verdict::kRemoteAccess;
  }
  Verdict fetch(const ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) override {
    std::copy_n(&memory[read.remote_address - kAddress + offset], to.size(), to.begin());
    return Verdict::kDone;
  }
  Verdict change(const ArrivedPiece& atomic, uint64_t* before) override {
    if (!is_inside(atomic)) return Verdict::kRemoteAccess;
    uint8_t* const word = &memory[atomic.remote_address - kAddress];
    memcpy(before, word, 8);
    const uint64_t after = *before + atomic.compare_add;
    memcpy(word, &after, 8);
    return Verdict::kDone;
  }
  uint8_t rnr_timer() override { return 12; }  // 0.64 ms
  void abandon() override {}

 private:
  bool is_inside(const ArrivedPiece& piece) const {
    return piece.rkey == kRkey && piece.remote_address >= kAddress && piece.length <= kMemory &&
           piece.remote_address - kAddress <= kMemory - piece.length;
  }

  const Introduction peer_;

 public:
  std::vector<uint8_t> memory;
  std::unique_ptr<RequesterMachine> requester;
  std::unique_ptr<ResponderMachine> responder;

 private:
  std::vector<uint8_t> read_;
  uint32_t posted_ = 0, completed_ = 0, received_ = 0, message_ = 0;
  uint64_t atomics_ = 0;
  bool refused_ = false;
};

// The UDP sockets: one that receives on the port of RoCE v2, and one whose datagrams have identification 0
// and the DF flag: neither is connected.
class Socket {
 public:
  Socket(const char* own, const char* peer) : peer_(address_of(peer, roce::kUdpPort)) {
    const sockaddr_in here = address_of(own, roce::kUdpPort), from = address_of(own, kSourcePort);
    in = socket(AF_INET, SOCK_DGRAM, 0);
    out_ = socket(AF_INET, SOCK_DGRAM, 0);
    const int discover = IP_PMTUDISC_DO;
    setsockopt(out_, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    require(bind(in, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0, "port 4791 is free");
    require(bind(out_, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0,
            "the source port is free");
    sending_ = flow(from, peer_);
    receiving_ = flow(peer_, here);
  }

  void send(const roce::Packet& packet) {
    uint8_t bytes[roce::kMaxPacket];
    const size_t size = roce::write(packet, bytes);
    roce::put_icrc(bytes + size, roce::icrc(sending_, std::span(bytes, size)));
    ::sendto(out_, bytes, size + roce::kIcrcSize, 0, reinterpret_cast<const sockaddr*>(&peer_), sizeof peer_);
  }

  // False: nothing is there. `packet` is empty (kTooShort) if its ICRC fits no identification.
  bool receive(roce::Packet* packet, roce::Parsed* parsed) {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t got =
        recvfrom(in, bytes_, sizeof bytes_, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &length);
    if (got < 0) return false;
    const std::span<const uint8_t> datagram(bytes_, static_cast<size_t>(got));
    *parsed = roce::parse(datagram, packet);
    if (*parsed != roce::Parsed::kPacket) return true;
    receiving_.source_port = ntohs(from.sin_port);
    uint16_t identification;
    if (!roce::find_identification(receiving_, datagram.first(datagram.size() - 4),
                                   roce::get_icrc(&datagram.end()[-4]), &identification))
      *parsed = roce::Parsed::kTooShort;
    return true;
  }

  int in;

 private:
  static roce::Ipv4Flow flow(const sockaddr_in& from, const sockaddr_in& to) {
    roce::Ipv4Flow flow{{}, {}, ntohs(from.sin_port), ntohs(to.sin_port)};
    memcpy(flow.source, &from.sin_addr, 4);
    memcpy(flow.destination, &to.sin_addr, 4);
    return flow;
  }

  int out_;
  sockaddr_in peer_;
  roce::Ipv4Flow sending_{}, receiving_{};
  uint8_t bytes_[65536];
};

int run(const char* own, const char* peer_address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const sockaddr_in here = address_of(own, 7471);
  require(
      bind(listener, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0 && listen(listener, 1) == 0,
      "the TCP port is free");
  Socket socket(own, peer_address);
  const int peer = accept(listener, nullptr, nullptr);
  Introduction mine{kQpn, kPsn, kAddress, kRkey}, yours;
  hear(peer, &yours, sizeof yours);
  End end(yours);
  tell(peer, &mine, sizeof mine);
  char word;
  hear(peer, &word, 1);  // it is ready to receive

  OwnedOutgoingPacket out;
  uint64_t damaged = 0;
  bool peer_is_done = false, told = false;
  const int64_t last = now_ns() + 120'000'000'000;
  while (!peer_is_done || !end.is_done()) {
    require(now_ns() < last, "it ends within two minutes");
    end.post();
    while (end.responder->next_packet(&out) || end.requester->next_packet(now_ns(), &out))
      socket.send(out.packet);
    if (end.is_done() && !told) told = true, tell(peer, "d", 1);
    pollfd ready[] = {{socket.in, POLLIN, 0}, {peer, POLLIN, 0}};
    const int64_t wait = std::clamp<int64_t>((end.requester->timer() - now_ns()) / 1'000'000 + 1, 0, 100);
    poll(ready, peer_is_done ? 1 : 2, static_cast<int>(wait));
    if (!peer_is_done && ready[1].revents != 0) hear(peer, &word, 1), peer_is_done = true;
    roce::Packet packet;
    roce::Parsed parsed;
    while (socket.receive(&packet, &parsed)) {
      if (parsed != roce::Parsed::kPacket || packet.bth.destination_qpn != kQpn) {
        ++damaged;
        continue;
      }
      end.requester->on_packet(packet, now_ns());
      end.responder->on_packet(packet);
    }
    end.requester->on_timer(now_ns());
  }
  require(damaged == 0, "every ICRC is right", damaged);
  verify_memory(end.memory.data());
  printf("roce_end: all right; %llu packets sent again\n",
         static_cast<unsigned long long>(end.requester->packets_repeated()));
  return 0;
}

}  // namespace
}  // namespace verbena::roce_test

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return verbena::roce_test::run(argv[1], argv[2]);
}
