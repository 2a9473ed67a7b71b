// SPDX-License-Identifier: BSD-2-Clause
//
// Carries a plan out in one process: the engine asks at a few places what is to happen. Off, each of these
// costs one load and one predictable branch. The process then takes no fast path.
//
// Threads: all calls from any thread; locks of the engine may be held. No call calls the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "faults/plan.h"

namespace verbena::faults {

// A request that is about to start.
struct RequestFacts {
  uint32_t qp = 0;           // index of its queue pair
  uint32_t incarnation = 0;  // SharedQp::incarnation: an index is used again
  uint64_t number = 0;       // running number on the queue pair
  uint32_t opcode = 0;       // enum ibv_wr_opcode
  uint32_t length = 0;       // bytes
  bool is_acknowledged = true;
  bool takes_receive = false;  // SENDs, and WRITE with immediate
  uint64_t timeout_ns = 0;     // ibv_qp_attr::timeout; 0: without end
  uint8_t retry_cnt = 0;
  uint8_t rnr_retry = 0;
};

struct Verdict {
  enum class Kind : uint8_t {
    kGo,
    kHold,  // until `until`
    kDrop,  // it completes, and does nothing
    kRnr,   // as if the peer had no receive request
    kFail,  // with `vendor_err`
  };
  Kind kind = Kind::kGo;
  int64_t until = 0;  // ns, CLOCK_MONOTONIC
  uint32_t vendor_err = 0;
  bool was_lost = false;  // kHold: it counts as a retry
};

struct PacketVerdict {
  enum class Kind : uint8_t { kGo, kLose, kRepeat, kDelay };
  Kind kind = Kind::kGo;
  int64_t until = 0;  // kDelay: ns, CLOCK_MONOTONIC
};

class Injection {
 public:
  // `now`: ns of CLOCK_MONOTONIC, the begin of the plan's time. `lost_error`: the vendor_err of a request
  // that was lost more often than retry_cnt allows.
  Injection(const Plan& plan, int64_t now, uint32_t lost_error);

  // Asked again for the same request until it may go. Ends the process where a rule says so.
  Verdict on_request(const RequestFacts& request, int64_t now);
  // Is the acknowledgement of the request lost, which has just been carried out? Then on_request() holds it
  // until its timeout, and says kDrop when an acknowledgement has come.
  bool loses_ack(const RequestFacts& request, int64_t now);
  // The same between nodes, where later requests are under way meanwhile: asked when the acknowledgement, or
  // the response, has come, and again until it says kGo. kHold: another one comes at `until`.
  Verdict on_acknowledgement(const RequestFacts& request, int64_t now);
  // A packet that is about to leave.
  PacketVerdict on_packet(PacketKind kind, int64_t now);
  // 0: the bytes of the request from `begin` on are placed in their order. Else: a draw for another order.
  uint64_t order_of_bytes(uint32_t qp, uint32_t opcode, uint32_t begin, int64_t now);
  // ns. How much later does ibv_get_cq_event return?
  uint64_t event_delay(uint32_t cq, int64_t now);
  // Does ibv_poll_cq find nothing now?
  bool holds_poll(uint32_t cq, int64_t now);
  bool wakes(uint32_t cq, int64_t now);
  bool refuses(uint32_t kind, int64_t now);

 private:
  // What a rule is about to decide on.
  struct Event {
    uint32_t object;
    uint32_t opcode;
    uint64_t number;  // of the event, for the draw
    uint64_t attempt;
  };
  struct RuleState {
    uint64_t seen = 0;
    uint64_t done = 0;
  };
  struct QpState {
    uint32_t incarnation = 0;
    bool has_request = false;
    uint64_t number = 0;  // of the request that is being judged; those before it have gone
    uint64_t attempt = 0;
    uint32_t losses = 0;
    uint32_t rnrs = 0;
    bool is_judged = false;  // this attempt
    bool fails = false;
    bool is_carried_out = false;  // its acknowledgement was lost
    uint32_t vendor_err = 0;
    int64_t until = 0;
    int64_t link_free_at = 0;
    int64_t went_at = 0;  // the request before
  };

  // Of the oldest request that is under way to another node.
  struct AcknowledgementState {
    uint32_t incarnation = 0;
    uint64_t number = UINT64_MAX;
    uint32_t losses = 0;
    int64_t until = 0;
  };

  bool happens(size_t rule, const Event& event, int64_t now);
  uint64_t duration(size_t rule, const Event& event) const;
  Verdict judge(QpState& qp, const RequestFacts& request, int64_t now);
  bool may_be_lost(uint32_t losses, const RequestFacts& request) const;
  bool note_lost(QpState& qp, const RequestFacts& request, int64_t now);
  bool loses_ack(QpState& qp, const RequestFacts& request, int64_t now);
  void take_link(QpState& qp, const RequestFacts& request, int64_t now);

  const Plan plan_;
  const int64_t began_;
  const uint32_t lost_error_;
  std::mutex mutex_;
  std::vector<RuleState> rules_;
  std::vector<QpState> qps_;
  std::vector<int64_t> held_polls_;                     // by CQ: until
  std::vector<uint64_t> polls_, armings_, events_;      // by CQ
  std::vector<uint64_t> creations_;                     // by kind
  std::vector<AcknowledgementState> acknowledgements_;  // by queue pair
  uint64_t packets_ = 0;
};

inline constinit std::atomic<Injection*> attached_injection{nullptr};

// nullptr: nothing is injected.
inline Injection* injection() { return attached_injection.load(std::memory_order_acquire); }

}  // namespace verbena::faults
