// SPDX-License-Identifier: BSD-2-Clause
//
// Flows that share one link: each is a requester that always has something to send, and its responder. The
// link has a rate and a short queue, drops what does not fit, and may mark packets when the queue is longer
// than a threshold (ECN); the responder reports marks (CNP). Without a clock.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "engine/packets/requester_machine.h"
#include "engine/packets/responder_machine.h"
#include "roce/packet.h"

namespace verbena::packets {

struct BottleneckOptions {
  double bytes_per_ns = 0.125;  // 1 Gb/s
  uint32_t queue = 64 << 10;    // bytes
  uint32_t mark_above = UINT32_MAX;
  int64_t round_trip = 100'000;  // ns, with an empty queue
  double loss = 0;               // of all packets, in both directions, besides what the queue drops
  uint32_t mtu = 1024;
  uint32_t window = 128;
  int flows = 1;
};

class Flow final : public RequesterHost, public ResponderHost {
 public:
  static constexpr uint32_t kMessage = 65536;

  explicit Flow(const BottleneckOptions& options)
      : requester({.connection = {.mtu = options.mtu},
                   .depth = kDepth,
                   .window = options.window,
                   .first_window = 16,
                   .timeout_ns = 67'108'864},
                  *this),
        responder({{.mtu = options.mtu}, 0, 1}, *this) {
    for (uint32_t i = 0; i < kDepth; ++i) post();
  }

  bool gather(uint64_t, uint32_t, std::span<uint8_t>) override { return true; }
  bool scatter(uint64_t, uint32_t, std::span<const uint8_t>) override { return true; }
  bool atomic_result(uint64_t, uint64_t) override { return true; }
  void completed(uint64_t) override { ++done; }
  void failed(uint64_t, Failure) override { ADD_FAILURE() << "a request failed"; }
  Verdict take(const ArrivedPiece& piece) override {
    bytes += piece.bytes.size();
    return Verdict::kDone;
  }
  Verdict check_read(const ArrivedPiece&) override { return Verdict::kDone; }
  Verdict fetch(const ArrivedPiece&, uint32_t, std::span<uint8_t>) override { return Verdict::kDone; }
  Verdict change(const ArrivedPiece&, uint64_t*) override { return Verdict::kDone; }
  uint8_t rnr_timer() override { return 1; }
  void abandon() override {}

  void post() {
    PacketRequest request;
    request.number = posted++;
    request.kind = Kind::kWrite;
    request.length = kMessage;
    if (!requester.post(request)) --posted;
  }

  RequesterMachine requester;
  ResponderMachine responder;
  uint64_t done = 0, posted = 0, bytes = 0;

 private:
  static constexpr uint32_t kDepth = 8;
};

class Bottleneck {
 public:
  explicit Bottleneck(const BottleneckOptions& options) : options_(options), random_(1) {
    for (int i = 0; i < options.flows; ++i) flows.push_back(std::make_unique<Flow>(options));
  }

  void run_until(int64_t end) {
    while (now < end) {
      for (int i = 0; i < static_cast<int>(flows.size()); ++i) pump(i);
      int64_t next = on_the_way_.empty() ? kNoTimer : on_the_way_.top().at;
      for (const auto& flow : flows) next = std::min(next, flow->requester.timer());
      ASSERT_NE(next, kNoTimer) << "nothing is left to do";
      now = std::max(now, next);
      while (!on_the_way_.empty() && on_the_way_.top().at <= now) {
        const Event event = on_the_way_.top();
        on_the_way_.pop();
        arrive(event);
      }
      for (auto& flow : flows)
        if (flow->requester.timer() <= now) flow->requester.on_timer(now);
    }
  }

  // Of what the link could carry since `since`, in payload.
  double share(const Flow& flow, uint64_t bytes_before, int64_t since) const {
    return static_cast<double>(flow.bytes - bytes_before) /
           (static_cast<double>(now - since) * options_.bytes_per_ns);
  }

  std::vector<std::unique_ptr<Flow>> flows;
  int64_t now = 0;
  uint64_t sent = 0, dropped = 0, marked = 0;

 private:
  struct Event {
    int64_t at;
    uint64_t order;
    int flow;
    bool is_request, is_marked;
    roce::Packet packet;
    bool operator<(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  bool is_lost() {
    return options_.loss > 0 && std::uniform_real_distribution<>(0, 1)(random_) < options_.loss;
  }

  void pump(int index) {
    Flow& flow = *flows[static_cast<size_t>(index)];
    while (flow.responder.next_packet(&out_))
      if (!is_lost()) push(now + options_.round_trip / 2, index, false, false);
    while (flow.requester.next_packet(now, &out_)) {
      ++sent;
      const double size = static_cast<double>(roce::packet_size(out_.packet)) + 4 + 28 + 38;
      const double waiting =
          static_cast<double>(std::max<int64_t>(free_at_ - now, 0)) * options_.bytes_per_ns;
      if (waiting + size > options_.queue || is_lost()) {
        ++dropped;
        continue;
      }
      const bool mark = waiting > options_.mark_above;
      marked += mark;
      free_at_ = std::max(free_at_, now) + static_cast<int64_t>(size / options_.bytes_per_ns);
      push(free_at_ + options_.round_trip / 2, index, true, mark);
    }
    while (flow.posted < flow.done + 8) flow.post();
  }

  void push(int64_t at, int flow, bool is_request, bool is_marked) {
    // The bytes of the payload do not matter.
    on_the_way_.push({at, order_++, flow, is_request, is_marked, out_.packet});
  }

  void arrive(const Event& event) {
    Flow& flow = *flows[static_cast<size_t>(event.flow)];
    if (event.packet.bth.opcode == roce::kCnpOpcode) return flow.requester.on_congestion(now);
    if (!event.is_request) return flow.requester.on_packet(event.packet, now);
    if (event.is_marked) flow.responder.on_mark(now);
    flow.responder.on_packet(event.packet);
  }

  const BottleneckOptions options_;
  std::mt19937_64 random_;
  std::priority_queue<Event> on_the_way_;
  uint64_t order_ = 0;
  int64_t free_at_ = 0;
  OwnedOutgoingPacket out_;
};

}  // namespace verbena::packets
