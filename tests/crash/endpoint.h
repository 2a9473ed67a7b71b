// SPDX-License-Identifier: BSD-2-Clause
//
// One process's verbs objects: a device, a CQ for all its queue pairs, one memory region, and up to kFlows
// queue pairs. pump() keeps the traffic of all flows going, checks every byte and completion, and reports
// through the control block.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "content.h"
#include "control_block.h"

namespace verbena::crash {

struct FlowPlan {
  Kind kind = Kind::kMixed;
  bool initiator = false;
  uint64_t salt = 0;
  uint32_t pace_us = 0;         // between two posts
  uint64_t limit = UINT64_MAX;  // messages
};

struct PeerAddress {
  uint32_t qpn = 0;
  uint32_t rkey = 0;
  uint64_t address = 0;
};

class Endpoint {
 public:
  explicit Endpoint(ControlBlock& block) : block_(block) {}
  ~Endpoint() { close(); }

  // All of them return false after they have called report() with the reason.
  bool open(int cqe, bool with_channel);
  void close();
  bool make_qp(int flow, PeerAddress* own);
  bool connect(int flow, const PeerAddress& peer, uint8_t timeout, uint8_t retry_count);
  bool start(int flow, const FlowPlan& plan);
  void pause(int flow) { flows_[flow].active = false; }
  // Has everything arrived whole that this flow's region received from an initiator which got so far?
  bool verify(int flow, uint64_t acknowledged, uint64_t posted);
  // `mark` is called right before the one verb that the function is about.
  bool post_next(int flow, void (*mark)() = nullptr);
  // This side of the flow, a target until now, posts from now on: small messages, on request.
  void turn(int flow);
  bool post_receive(int flow, uint64_t buffer, void (*mark)() = nullptr);
  bool drop(int flow);
  ibv_qp_state state(int flow);
  // Polls until the CQ is empty and posts what may be posted. Returns the microseconds after which it must be
  // called again at the latest; 0: at once, -1: not before a completion.
  int64_t pump();
  // One ibv_poll_cq between two marks; completions handled afterwards.
  int poll_once(void (*mark)() = nullptr);

  bool has_active_flow() const;
  ibv_comp_channel* channel() const { return channel_; }
  bool arm();  // true: armed, and the CQ was empty afterwards
  bool take_event();
  void* memory() const { return memory_; }
  size_t memory_size() const;
  uint64_t counter(int flow) const;

  void report(const char* format, ...) __attribute__((format(printf, 2, 3)));

 private:
  struct Flow {
    FlowPlan plan;
    bool active = false;  // posts, as initiator
    bool running = false;
    ibv_qp* qp = nullptr;
    PeerAddress peer;
    uint64_t polled = 0;  // sends completed in any way
    uint64_t posted = 0;
    uint64_t received = 0;      // messages
    uint64_t next_receive = 0;  // number of the next message that takes a receive
    uint64_t fetched = 0;
    int64_t next_post_ns = 0;
    std::array<int64_t, kWindow> post_ns{};
  };
  char* region(int flow) const;
  bool handle(const ibv_wc& wc);
  bool handle_send(int flow, const ibv_wc& wc);
  bool handle_receive(int flow, const ibv_wc& wc);
  void check_answer(int flow, uint64_t number);

  ControlBlock& block_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  void* memory_ = nullptr;
  ibv_gid gid_ = {};
  ibv_port_attr port_ = {};
  std::array<Flow, kFlows> flows_;
};

}  // namespace verbena::crash
