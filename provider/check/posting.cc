// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_post_send(3), ibv_post_recv(3), ibv_post_srq_recv(3) and ibv_wr_complete(3): requests are entered
// before the provider gets them, because another thread may poll their completions before it returns.
#include <errno.h>

#include <utility>

#include "check/likeness.h"
#include "check/next_function.h"
#include "check/operations.h"
#include "check/outstanding.h"
#include "check/patterns.h"
#include "check/peers.h"
#include "check/protection.h"
#include "check/request_rules.h"
#include "check/shadows.h"
#include "check/write_races.h"
#include "findings/families.h"

namespace verbena::check {
namespace {

constexpr unsigned kLongestList = 1u << 20;  // a list of requests that leads back to itself has no end

uint64_t total(const std::vector<Range>& ranges) {
  uint64_t sum = 0;
  for (const Range& range : ranges) sum += range.length;
  return sum;
}

template <typename Wr>
std::vector<Range> ranges_of(const ibv_context* context, const Wr& wr) {
  std::vector<Range> ranges;
  for (int i = 0; i < wr.num_sge && wr.sg_list != nullptr; ++i)
    if (const ibv_sge& sge = wr.sg_list[i]; sge.length != 0)
      ranges.push_back(
          {static_cast<uintptr_t>(sge.addr), sge.length, sge.lkey, memory_of(context, sge.addr, sge.lkey)});
  return ranges;
}

// ---- the send queue ----

Request enter_send(QueuePair& qp, const ibv_send_wr& wr, StackId posted, const Stack& stack) {
  Request request;
  request.serial = next_serial();
  request.wr_id = wr.wr_id;
  request.posted = posted;
  request.opcode = static_cast<int>(wr.opcode);
  request.signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  const bool inline_data = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV) return request;
  request.ranges = ranges_of(qp.context, wr);
  request.bytes = total(request.ranges);
  check_send_rules(qp, wr, request);
  unprotect_buffers(request);
  if (inline_data) {
    request.ranges.clear();  // the bytes are taken by the call
  } else {
    note_thread(request, stack);
    take_sum(qp, request);
    protect_buffers(qp, request);
  }
  return request;
}

// The serials of a list that was entered: those of other threads may come before and after them.
struct Entered {
  uint64_t before = 0;  // the serial before the first one
  uint64_t count = 0;
};

// Removes what `entered` has in `queue`, but for the first `posted`. Calls `removed(request)` for each.
template <typename Removed>
void take_back(std::deque<Request>& queue, const Entered& entered, uint64_t posted, Removed removed) {
  std::erase_if(queue, [&](const Request& request) {
    if (request.serial <= entered.before + posted || request.serial > entered.before + entered.count)
      return false;
    end_protection(request.serial);
    removed(request);
    return true;
  });
}

// The number of requests of the list before `bad`, which is one of them.
template <typename Wr>
uint64_t count_before(const Wr* list, const Wr* bad, const Entered& entered) {
  uint64_t count = 0;
  for (const Wr* wr = list; wr != nullptr && wr != bad && count < entered.count; wr = wr->next) ++count;
  return count;
}

Entered enter_sends(QueuePair& qp, const ibv_send_wr* list, const std::optional<PeerAttributes>& peer,
                    const Stack& stack) {
  const StackId posted = keep_stack(stack);
  if (peer) compare_ends(qp, *peer, posted);
  const uint64_t before = last_serial();  // the lock is held: the list's serials follow one another
  if (qp.sends_posted == 0 && qp.send_cq != nullptr) qp.polls_at_first_send = qp.send_cq->polls;
  qp.last_send = posted;
  if (qp.accepted != 0)
    report(rule("send-before-established"), qp.name + " sends before RDMA_CM_EVENT_ESTABLISHED was read",
           {{"posted here", posted}, {"accepted here", qp.accepted}});
  unsigned count = 0;
  for (const ibv_send_wr* wr = list; wr != nullptr && count < kLongestList; wr = wr->next, ++count) {
    qp.sends.push_back(enter_send(qp, *wr, posted, stack));
    if (qp.send_cq != nullptr && qp.sends.back().signaled) ++qp.send_cq->expected;
  }
  qp.sends_posted += count;
  if (qp.send_cq != nullptr) check_room(*qp.send_cq, posted);
  return {before, count};
}

// The list was posted up to `bad`, not including it; null: nothing of it.
void take_back_sends(QueuePair& qp, const ibv_send_wr* list, const ibv_send_wr* bad, const Entered& entered,
                     int error, const Stack& stack) {
  const uint64_t posted = bad != nullptr ? count_before(list, bad, entered) : 0;
  take_back(qp.sends, entered, posted, [&](const Request& request) {
    if (qp.send_cq != nullptr && request.signaled) --qp.send_cq->expected;
    --qp.sends_posted;
  });
  explain_refused_send(qp, bad != nullptr ? *bad : *list, error, keep_stack(stack));
}

bool has_atomic(const ibv_send_wr* list) {
  for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next)
    if (const SendOperation* const operation = operation_of(static_cast<int>(wr->opcode));
        operation != nullptr && operation->atomic)
      return true;
  return false;
}

int post_send(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  const Stack stack = capture_stack();
  learn_stack();
  if (!is_usable(ibv, "ibv_post_send", stack)) return *bad_wr = wr, EINVAL;
  watch_targets(ibv, wr, stack);
  const std::optional<PeerAttributes> peer = find_new_peer(ibv);
  Entered entered;
  {
    const Locked locked;
    if (auto* const qp = find<QueuePair>(ibv); qp != nullptr) entered = enter_sends(*qp, wr, peer, stack);
  }
  take_reason();
  const int error = below().post_send(ibv, wr, bad_wr);
  if (error == 0) {
    report_reason(stack);
    if (has_atomic(wr)) compare_ability(findings::kAtomics, "ibv_post_send", stack);
    return 0;
  }
  const Locked locked;
  if (auto* const qp = find<QueuePair>(ibv); qp != nullptr)
    take_back_sends(*qp, wr, *bad_wr, entered, error, stack);
  return error;
}

// ---- ibv_wr_*(3) ----

int wr_complete(ibv_qp_ex* ex) {
  const Stack stack = capture_stack();
  learn_stack();
  ibv_qp* const ibv = &ex->qp_base;
  if (!is_usable(ibv, "ibv_wr_complete", stack)) return EINVAL;
  const ibv_send_wr* const list = provider().open_batch(ex);
  if (list != nullptr) watch_targets(ibv, list, stack);
  const std::optional<PeerAttributes> peer = find_new_peer(ibv);
  Entered entered;
  int (*complete)(ibv_qp_ex*) = nullptr;
  {
    const Locked locked;
    auto* const qp = find<QueuePair>(ibv);
    complete = qp->wr_complete;
    if (list != nullptr) entered = enter_sends(*qp, list, peer, stack);
  }
  take_reason();
  const int error = complete(ex);
  if (error == 0) return report_reason(stack), 0;
  const Locked locked;
  if (list != nullptr) take_back_sends(*find<QueuePair>(ibv), list, nullptr, entered, error, stack);
  return error;
}

// ---- receive queues ----

// `qp` is null for an SRQ. Takes what it needs of `shadows`, and gives the others back.
Entered enter_receives(ReceiveQueue& queue, const Object& owner, const Object* pd, const QueuePair* qp,
                       const ibv_recv_wr* list, std::vector<Shadow*>& shadows, const Stack& stack) {
  const StackId posted = keep_stack(stack);
  const uint64_t before = last_serial();
  unsigned count = 0;
  for (const ibv_recv_wr* wr = list; wr != nullptr && count < kLongestList; wr = wr->next, ++count) {
    Request request;
    request.serial = next_serial();
    request.wr_id = wr->wr_id;
    request.posted = posted;
    request.ranges = ranges_of(owner.context, *wr);
    request.bytes = total(request.ranges);
    check_receive_rules(queue, owner, pd, qp, *wr, request);
    note_thread(request, stack);
    unprotect_buffers(request);
    fill_pattern(owner.context, request);
    if (count < shadows.size() && shadows[count] != nullptr) {
      if (!protect_receive(*qp, request)) give_back(std::exchange(shadows[count], nullptr));
      request.shadow = shadows[count];
    }
    queue.requests.push_back(std::move(request));
  }
  return {before, count};
}

uint64_t take_back_receives(ReceiveQueue& queue, const ibv_recv_wr* list, const ibv_recv_wr* bad,
                            const Entered& entered) {
  uint64_t taken_back = 0;
  take_back(queue.requests, entered, count_before(list, bad, entered), [&](const Request& request) {
    give_back(request.shadow);
    ++taken_back;
  });
  return taken_back;
}

int post_recv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const Stack stack = capture_stack();
  learn_stack();
  if (!is_usable(ibv, "ibv_post_recv", stack)) return *bad_wr = wr, EINVAL;
  std::vector<Shadow*> shadows = take_shadows(ibv->pd, wr);
  Entered entered;
  {
    const Locked locked;
    if (auto* const qp = find<QueuePair>(ibv); qp == nullptr) {
      for (Shadow*& each : shadows) give_back(std::exchange(each, nullptr));
    } else {
      entered = enter_receives(qp->receives, *qp, qp->pd, qp, wr, shadows, stack);
      qp->receives_posted += entered.count;
      if (qp->recv_cq != nullptr) {
        qp->recv_cq->expected += static_cast<int64_t>(entered.count);
        check_room(*qp->recv_cq, keep_stack(stack));
      }
    }
  }
  ShadowedList shadowed(wr, shadows);
  const int error = below().post_recv(ibv, shadowed.first(), bad_wr);
  if (error == 0) return 0;
  *bad_wr = shadowed.original(*bad_wr);
  const Locked locked;
  auto* const qp = find<QueuePair>(ibv);
  if (qp == nullptr) return error;
  const uint64_t count = take_back_receives(qp->receives, wr, *bad_wr, entered);
  qp->receives_posted -= count;
  if (qp->recv_cq != nullptr) qp->recv_cq->expected -= static_cast<int64_t>(count);
  explain_refused_receive(*qp, qp, qp->receives, **bad_wr, error, keep_stack(stack));
  return error;
}

int post_srq_recv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const Stack stack = capture_stack();
  learn_stack();
  if (!is_usable(ibv, "ibv_post_srq_recv", stack)) return *bad_wr = wr, EINVAL;
  Entered entered;
  {
    const Locked locked;
    if (auto* const srq = find<SharedQueue>(ibv); srq != nullptr) {
      std::vector<Shadow*> none;
      entered = enter_receives(srq->receives, *srq, srq->pd, nullptr, wr, none, stack);
    }
  }
  const int error = below().post_srq_recv(ibv, wr, bad_wr);
  if (error == 0) return 0;
  const Locked locked;
  auto* const srq = find<SharedQueue>(ibv);
  if (srq == nullptr) return error;
  take_back_receives(srq->receives, wr, *bad_wr, entered);
  explain_refused_receive(*srq, nullptr, srq->receives, **bad_wr, error, keep_stack(stack));
  return error;
}

}  // namespace

void check_builders(ibv_qp* ibv) {
  // Looked up when it is needed: programs that do not use libibverbs load this library as well.
  ibv_qp_ex* const ex = next_function<ibv_qp_ex*(ibv_qp*)>("ibv_qp_to_qp_ex")(ibv);
  if (ex == nullptr) return;
  const Locked locked;
  find<QueuePair>(ibv)->wr_complete = ex->wr_complete;
  ex->wr_complete = wr_complete;
}

void check_posting(rdma_core::ContextOps& table) {
  table.post_send = post_send;
  table.post_recv = post_recv;
  table.post_srq_recv = post_srq_recv;
}

}  // namespace verbena::check
