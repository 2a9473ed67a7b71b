// SPDX-License-Identifier: BSD-2-Clause
//
// The model: what may come of a random program, as the specification has it. It knows nothing of a device.
//
// What it says, and from where (IBA: InfiniBand Architecture Specification 1.3, volume 1, as the manual pages
// and the kernel's sources state it):
// - Requests of a send queue are carried out in their order, and so are the completions of a queue
//   (ibv_post_send(3), IBA 10.8.3). Queues are independent of each other: between two Settle steps their
//   requests may interleave in any way.
// - A READ is not ordered before what is posted after it, unless that is fenced (IBA 10.8.3.3, Table 76).
// - An unsignaled request has no completion if it succeeds, and one if it fails (ibv_post_send(3)).
// - A request that fails ends its queue: those behind it complete with IBV_WC_WR_FLUSH_ERR, and so do the
//   receives. At the responder, an error in access or length does the same (IBA 9.9.2, 10.3.1.7; clauses
//   error.rc.*).
// - Between two devices a packet may be lost. One that tells of an error is not sent again, since the
//   responder is in ERR: the request fails with IBV_WC_RETRY_EXC_ERR then (clauses retry.timeout.*).
// - A SEND or a WRITE with immediate of a reliable connection waits for a receive as long as rnr_retry says
//   (7: for ever; ibv_modify_qp(3)). Programs have 7 only.
// - A byte has any value if two that are not ordered use it at a time, and one of them writes it. These are
//   the queues, and of each queue its requester (gathering, and scattering what comes back) and its
//   responder.
// - The bytes of a receive may be used again when its completion has been retrieved (ibv_post_recv(3)). Until
//   then a short message may stand in the completion, and be placed by the CPU that takes it, which looks at
//   no lkey (rdma-core providers/mlx5/qp.c, copy_to_scat()): kInCompletion. So may what a READ brings.
//
// What the specification leaves open is either allowed for (a set of statuses, of states, of values of a
// byte) or kept out of programs by admits().
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "random/possible.h"
#include "random/program.h"

namespace conformance::random {

constexpr uint32_t kGrh = 40;           // bytes in front of a datagram (ibv_post_recv(3), NOTES)
constexpr uint32_t kInCompletion = 64;  // the longest message that a completion may carry

// A completion that must come.
struct Expected {
  uint64_t id;
  bool is_receive;
  std::set<ibv_wc_status> statuses;  // one of them
  // With IBV_WC_SUCCESS:
  ibv_wc_opcode opcode = IBV_WC_SEND;
  std::optional<uint32_t> bytes{};  // of a receive
  std::optional<uint32_t> imm{};
  std::optional<uint32_t> invalidated{};  // the window
};

// Since the last Settle, in the order in which they must come; those of another queue or end may come
// between.
struct Expectations {
  std::vector<std::vector<Expected>> sends, receives;  // by end
  std::vector<ibv_qp_state> states;                    // by end
};

class Model {
 public:
  Model(const Setup& setup, const Claims& claims);

  // Is the step one whose outcome the model can tell, after the steps so far?
  bool admits(const Step& step) const;
  // Takes a step that it admits.
  void apply(const Step& step);
  // May a device refuse the call of a step that was just taken? An lkey that is no good is found by some when
  // it is posted (Linux drivers/infiniband/sw/rdmavt/qp.c, rvt_post_one_wr()), by others when it is used.
  bool may_be_refused(const Step& step) const;

  // After a Settle.
  const Expectations& expected() const { return expected_; }
  const std::vector<PossibleByte>& memory(uint32_t buffer) const { return now_.memory[buffer]; }
  // Now they are known to have these values, each of which memory() allows.
  void observe(uint32_t buffer, const uint8_t* bytes);

  // For the generator.
  bool has_pending() const;
  bool is_broken(uint32_t connection) const { return now_.connections[connection].is_broken; }
  const Bind& binding(uint32_t window) const { return now_.windows[window].bind; }
  size_t receives_of(EndIndex end) const;  // where the requests of the other end take them

 private:
  enum class Fault : uint8_t { kNone, kLocal, kAccess, kQpAccess, kTooLong, kReceive };
  enum class WindowUse : uint8_t { kUnbound, kBound, kChanging, kUnknown };

  struct KeyedElement {
    Element element;
    uint32_t generation;  // of the region's keys when it was posted
  };
  struct PostedReceive {
    uint64_t id;
    std::vector<KeyedElement> elements;
  };
  struct PostedRequest {
    Request request;
    std::vector<KeyedElement> elements;
    // The values that its bytes have had since it was posted; inline: when it was posted. Empty: it is not
    // inline, and was posted after the last Settle.
    std::vector<PossibleByte> earlier;
    uint32_t serial;
    bool is_new = true;     // posted since the last Settle
    bool met_none = false;  // it takes a receive, and none was there when it was posted
  };
  struct End {
    ibv_qp_state state = IBV_QPS_RTS;
    std::deque<PostedRequest> sends;
    std::deque<PostedReceive> receives;
    uint32_t posted = 0, released = 0;  // requests: serials
  };
  struct ConnectionState {
    bool is_broken = false;
    bool fails = false;  // a request that fails was posted since the last Settle
  };
  struct Window {
    WindowUse use = WindowUse::kUnbound;
    Bind bind{};
    EndIndex end = 0;
    WindowUse after = WindowUse::kUnbound;  // kChanging: what it becomes
    Bind next{};
  };
  // All that changes.
  struct State {
    std::vector<std::vector<PossibleByte>> memory;
    std::vector<uint32_t> generations;  // of regions' keys
    std::vector<Window> windows;
    std::vector<ConnectionState> connections;
    std::vector<End> ends;
    std::deque<PostedReceive> shared, xrc_shared;
  };
  class Execution;

  // Judgements.
  bool is_valid(const KeyedElement& element, bool to_write) const;
  Fault judge(EndIndex end, const PostedRequest& posted, const PostedReceive* receive) const;
  Fault judge_target(EndIndex responder, const Request& request, uint32_t length) const;
  bool is_wellformed(EndIndex end, const Request& request) const;
  bool may_bind(EndIndex end, const Request& request) const;
  bool fence_counts_later(const PostSends& step) const;
  bool admits(const PostReceives& step) const;
  bool admits(const PostSends& step) const;
  bool admits(const Fill& step) const;
  bool admits(const RegisterAgain& step) const;
  bool admits(const ToError& step) const;
  bool admits(const Reconnect& step) const;
  bool admits(const Settle&) const { return true; }

  // Effects.
  void apply(const PostReceives& step);
  void apply(const PostSends& step);
  void apply(const Fill& step);
  void apply(const RegisterAgain& step) { ++now_.generations[step.region]; }
  void apply(const ToError& step);
  void apply(const Reconnect& step);
  void apply(const Settle&);

  // Helpers.
  void add_written(const Execution& execution, PostedRequest* posted) const;
  const Connection& connection_of(EndIndex end) const { return setup_.connections[end / 2]; }
  bool is_reliable(EndIndex end) const;
  std::optional<Span> target_span(const Target& target, uint32_t length) const;
  std::deque<PostedReceive>& receive_queue(State& state, EndIndex responder) const;
  const std::deque<PostedReceive>& receive_queue(EndIndex responder) const;
  bool shares_receives(EndIndex one, EndIndex other) const;
  size_t consumers(EndIndex end) const;  // pending requests that take a receive
  bool takes_receive(const Request& request) const;
  PostedRequest posted(const Request& request, uint32_t serial) const;
  PostedReceive posted(const Receive& receive) const;

  const Setup setup_;
  const Claims claims_;
  State now_;
  Expectations expected_;
  uint32_t changed_ = 0;  // steps since the last Settle
};

}  // namespace conformance::random
