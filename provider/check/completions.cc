// SPDX-License-Identifier: BSD-2-Clause
//
// Polling: which request has completed, and what its status says about the program.
#include "check/completions.h"

#include <errno.h>

#include <algorithm>

#include "check/operations.h"
#include "check/outstanding.h"
#include "check/patterns.h"
#include "check/protection.h"
#include "check/shadows.h"
#include "engine/rules/vendor_error.h"

namespace verbena::check {
namespace {

using Wide = unsigned long long;

// A program that waits for what cannot come polls in vain many times; one that only empties the queue, once.
constexpr unsigned kPollsInVain = 1000;

struct ErrorRule {
  VendorError error;
  const findings::Rule& rule;
};

// What a failed completion says of the program. Not here: flushes, and a peer that has died or does not
// answer.
constexpr ErrorRule kErrorRules[] = {
    {VendorError::message_too_long, rule("message-length")},
    {VendorError::atomic_not_8_bytes, rule("atomic-length")},
    {VendorError::receive_too_small, rule("receive-too-short")},
    {VendorError::too_many_outstanding_reads, rule("rd-atomic-zero")},
    {VendorError::address_handle_other_pd, rule("ah-other-pd")},
    {VendorError::lkey_unknown, rule("lkey-unknown")},
    {VendorError::lkey_other_pd, rule("lkey-other-pd")},
    {VendorError::lkey_out_of_range, rule("mr-range")},
    {VendorError::lkey_no_local_write, rule("mr-local-write")},
    {VendorError::local_memory_gone, rule("memory-unmapped")},
    {VendorError::bind_refused, rule("window-bind")},
    {VendorError::remote_receive_too_small, rule("send-too-long")},
    {VendorError::remote_opcode_refused, rule("remote-operation")},
    {VendorError::remote_atomic_misaligned, rule("atomic-alignment")},
    {VendorError::remote_no_read_resources, rule("remote-no-read-resources")},
    {VendorError::remote_qp_no_right, rule("remote-qp-access")},
    {VendorError::remote_srq_unknown, rule("remote-operation")},
    {VendorError::rkey_unknown, rule("rkey-unknown")},
    {VendorError::rkey_other_pd, rule("rkey-other-pd")},
    {VendorError::rkey_out_of_range, rule("rkey-range")},
    {VendorError::rkey_no_right, rule("rkey-access")},
    {VendorError::remote_memory_gone, rule("memory-unmapped")},
    {VendorError::rkey_other_qp, rule("window-other-qp")},
    {VendorError::peer_not_ready, rule("peer-not-ready")},
    {VendorError::no_path, rule("no-path")},
    {VendorError::peer_mismatch, rule("peer-mismatch")},
    {VendorError::no_receive_posted, rule("rnr-exceeded")},
};

const findings::Rule* rule_of(const ibv_wc& wc) {
  for (const ErrorRule& each : kErrorRules)
    if (static_cast<uint32_t>(each.error) == wc.vendor_err) return &each.rule;
  return nullptr;
}

// The access flag that the peer would have had to give; "": it was not that.
const char* missing_access(const Request& request, const ibv_wc& wc) {
  const auto error = static_cast<VendorError>(wc.vendor_err);
  if (error != VendorError::rkey_no_right && error != VendorError::remote_qp_no_right) return "";
  switch (request.opcode) {
    case IBV_WR_RDMA_READ:
      return ": IBV_ACCESS_REMOTE_READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return ": IBV_ACCESS_REMOTE_ATOMIC";
    default:
      return ": IBV_ACCESS_REMOTE_WRITE";
  }
}

void report_failure(const QueuePair& qp, const Request& request, const ibv_wc& wc, StackId polled) {
  const findings::Rule* const broken = request.accused ? nullptr : rule_of(wc);
  if (broken == nullptr) return;
  report(*broken,
         text("%s: %s with wr_id 0x%llx, %llu bytes: IBV_WC_%s, %s%s", qp.name.c_str(), kind_of(request),
              Wide{request.wr_id}, Wide{request.bytes}, name_of_status(wc.status),
              find_vendor_error(wc.vendor_err)->text, missing_access(request, wc)),
         {{"posted here", request.posted},
          {"completion polled here", polled},
          {"the queue pair was modified last here", qp.modified}});
}

// Has a request of the queue pair found no receive since the last completion?
void note_rnr(QueuePair& qp, const Request& request, const Stack& polling) {
  if (!is_enabled(rule("receive-late")) || qp.type != IBV_QPT_RC) return;
  const uint32_t naks = provider().rnr_naks(qp.qp);
  if (naks == qp.rnr_naks) return;
  report(rule("receive-late"),
         text("%s: %u times the peer had no receive for a request, up to the %s with wr_id 0x%llx",
              qp.name.c_str(), naks - qp.rnr_naks, kind_of(request), Wide{request.wr_id}),
         {{"posted here", request.posted}, {"completion polled here", keep_stack(polling)}});
  qp.rnr_naks = naks;
}

// A request of the send queue completes all before it.
void complete_send(QueuePair& qp, const ibv_wc& wc, const Stack& polling) {
  const auto is_it = [&](const Request& request) {
    return request.wr_id == wc.wr_id && (request.signaled || wc.status != IBV_WC_SUCCESS);
  };
  const auto place = std::find_if(qp.sends.begin(), qp.sends.end(), is_it);
  if (place == qp.sends.end()) return;
  for (auto each = qp.sends.begin(); each != std::next(place); ++each) {
    const bool is_last = each == place;
    if (!is_last || wc.status == IBV_WC_SUCCESS) check_finished(qp, *each, polling);
    if (qp.send_cq != nullptr && each->signaled) --qp.send_cq->expected;
    end_protection(each->serial);
  }
  if (wc.status != IBV_WC_SUCCESS) report_failure(qp, *place, wc, keep_stack(polling));
  note_rnr(qp, *place, polling);
  qp.sends.erase(qp.sends.begin(), std::next(place));
}

void complete_receive(QueuePair& qp, const ibv_wc& wc, const Stack& polling) {
  std::deque<Request>& queue = qp.srq != nullptr ? qp.srq->receives.requests : qp.receives.requests;
  const auto place = std::find_if(queue.begin(), queue.end(),
                                  [&](const Request& request) { return request.wr_id == wc.wr_id; });
  if (place == queue.end()) return;
  end_protection(place->serial);
  if (wc.status == IBV_WC_SUCCESS) {
    check_finished(qp, *place, polling);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {  // the peer has written, and may have written there
      if (place->shadow != nullptr) copy_from(*place->shadow, place->ranges, wc.byte_len);
      check_pattern(qp, *place, wc.byte_len, polling);
    }
  } else {
    report_failure(qp, *place, wc, keep_stack(polling));
  }
  give_back(place->shadow);
  if (qp.srq == nullptr && qp.recv_cq != nullptr) --qp.recv_cq->expected;
  forget_sums(qp, *place);
  queue.erase(place);
}

void complete(CompletionQueue& cq, const ibv_wc& wc, const Stack& polling) {
  QueuePair* const qp = find_qp(cq, wc.qp_num);
  if (qp == nullptr) return;
  if (wc.status != IBV_WC_SUCCESS) qp->failed = true;
  const bool is_receive =
      (wc.opcode & IBV_WC_RECV) != 0;  // this provider sets the opcode of failed ones as well
  if (is_receive) qp->accepted = 0;  // the peer sends: it has the connection (IBTA vol. 1, 12.9.6, COMM_EST)
  if (is_receive)
    complete_receive(*qp, wc, polling);
  else
    complete_send(*qp, wc, polling);
}

// A program that waits polls empty queues all the time: then no stack is captured, unless it is going to be
// reported. False: it is needed.
bool note_empty_poll(const void* handle) {
  const Locked locked;
  auto* const cq = find<CompletionQueue>(handle);
  if (cq == nullptr) return true;
  if (cq->left != nullptr && cq->polls_for_left + 1 == kPollsInVain) return false;
  note_poll(*cq, true, Stack{});
  return true;
}

int poll_cq(ibv_cq* ibv, int entries, ibv_wc* wc) {
  if (!is_usable(ibv, "ibv_poll_cq")) return -EINVAL;
  const int polled = below().poll_cq(ibv, entries, wc);
  if (polled == 0 && note_empty_poll(ibv)) return 0;
  const Stack stack = capture_stack();
  const Locked locked;
  auto* const cq = find<CompletionQueue>(ibv);
  if (cq == nullptr || polled < 0) return polled;
  note_poll(*cq, polled == 0, stack);
  for (int i = 0; i < polled; ++i) complete(*cq, wc[i], stack);
  return polled;
}

// ---- extended CQs ----

struct Iterator {
  int (*start_poll)(ibv_cq_ex*, ibv_poll_cq_attr*);
  int (*next_poll)(ibv_cq_ex*);
  void (*end_poll)(ibv_cq_ex*);
};
Iterator original;  // the provider has one of each

void note_current(ibv_cq_ex* ex, int error) {
  if (error == ENOENT && note_empty_poll(ex)) return;
  const Stack stack = capture_stack();
  const Locked locked;
  auto* const cq = find<CompletionQueue>(ex);
  if (cq == nullptr) return;
  note_poll(*cq, error == ENOENT, stack);
  if (error == 0) complete(*cq, *provider().current(ex), stack);
}

bool is_for_one_thread(const ibv_cq_ex* ex) {
  const Locked locked;
  const auto* const cq = find<CompletionQueue>(ex);
  return cq != nullptr && cq->one_thread;
}

// From start to end the queue belongs to one thread.
void enter_poller(ibv_cq_ex* ex) {
  if (!is_for_one_thread(ex)) return;
  const Stack stack = capture_stack();
  const Locked locked;
  auto* const cq = find<CompletionQueue>(ex);
  const int thread = this_thread();
  if (cq->poller != 0 && cq->poller != thread) {
    report(rule("poll-two-threads"), text("%s: threads %d and %d", cq->name.c_str(), cq->poller, thread),
           {{"polled here", keep_stack(stack)},
            {"the other thread polls here", cq->polling},
            {"made here", cq->created}});
    return;
  }
  cq->poller = thread;
  cq->polling = keep_stack(stack);
}

void leave_poller(ibv_cq_ex* ex) {
  const Locked locked;
  if (auto* const cq = find<CompletionQueue>(ex); cq != nullptr && cq->poller == this_thread())
    cq->poller = 0;
}

int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) {
  if (!is_usable(ex, "ibv_start_poll")) return EINVAL;
  enter_poller(ex);
  const int error = original.start_poll(ex, attr);
  if (error != 0) leave_poller(ex);
  note_current(ex, error);
  return error;
}

int next_poll(ibv_cq_ex* ex) {
  const int error = original.next_poll(ex);
  note_current(ex, error);
  return error;
}

void end_poll(ibv_cq_ex* ex) {
  leave_poller(ex);
  original.end_poll(ex);
}

// ---- notification ----

int req_notify_cq(ibv_cq* ibv, int solicited_only) {
  const Stack stack = capture_stack();
  if (!is_usable(ibv, "ibv_req_notify_cq", stack)) return EINVAL;
  const uint32_t waiting = solicited_only != 0 ? 0 : provider().waiting(ibv);
  {
    const Locked locked;
    if (auto* const cq = find<CompletionQueue>(ibv); cq != nullptr) {
      cq->waiting_at_arming = cq->armed ? 0 : waiting;
      cq->polls_at_arming = cq->polls;
      cq->armed_by = this_thread();
      cq->armed = true;
      cq->solicited_only = solicited_only != 0;
      cq->arming = keep_stack(stack);
    }
  }
  return below().req_notify_cq(ibv, solicited_only);
}

// The program has read one event of the queue, whose notification is used up.
void cq_event(ibv_cq* ibv) {
  const Stack stack = capture_stack();
  below().cq_event(ibv);
  const Locked locked;
  auto* const cq = find<CompletionQueue>(ibv);
  if (cq == nullptr) return;
  if (cq->armed && cq->waiting_at_arming != 0 && cq->polls == cq->polls_at_arming &&
      cq->armed_by == this_thread()) {
    cq->unpolled = keep_stack(stack);
    cq->unpolled_arming = cq->arming;
    cq->unpolled_thread = this_thread();
  }
  cq->armed = false;
  ++cq->events_read;
  cq->event_read = keep_stack(stack);
}

void async_event(ibv_context* context, ibv_async_event* event) {
  const Stack stack = capture_stack();
  if (below().async_event != nullptr) below().async_event(context, event);
  const Locked locked;
  Object* const owner = find_owner(*event);
  if (owner == nullptr) return;
  ++owner->async_read;
  owner->async_event_read = keep_stack(stack);
  if (event->event_type == IBV_EVENT_CQ_ERR && owner->kind == Kind::kCq)
    report_overrun(static_cast<const CompletionQueue&>(*owner));
}

}  // namespace

namespace {

// This device, as some adapters, has an event for what was there before the queue was armed; others have
// none, and the thread would have slept. Another thread may poll after each arming, as it should.
void look_at_arming(CompletionQueue& cq) {
  if (cq.unpolled == 0) return;
  if (cq.unpolled_thread == this_thread())
    report(
        rule("rearm-race"),
        text("%s had %u completions when it was armed, and the thread waited for an event before it polled",
             cq.name.c_str(), cq.waiting_at_arming),
        {{"waited here", cq.unpolled}, {"armed here", cq.unpolled_arming}});
  cq.unpolled = 0;
}

}  // namespace

void note_poll(CompletionQueue& cq, bool found_nothing, const Stack& stack) {
  ++cq.polls;
  look_at_arming(cq);
  if (!cq.said_overrun && provider().has_overrun(cq.cq)) {
    cq.said_overrun = true;
    report_overrun(cq);
  }
  if (cq.left == nullptr) return;
  cq.polls_for_left = found_nothing ? cq.polls_for_left + 1 : 0;
  if (cq.polls_for_left != kPollsInVain) return;
  const bool has_others = std::any_of(all_objects().begin(), all_objects().end(), [&](const Object* object) {
    return object->kind == Kind::kQp && object->alive &&
           std::find(object->uses.begin(), object->uses.end(), &cq) != object->uses.end();
  });
  if (!has_others)
    report(rule("completion-of-destroyed"),
           text("%s was polled %u times in vain, after %s was destroyed with signaled requests outstanding",
                cq.name.c_str(), kPollsInVain, cq.left->name.c_str()),
           {{"polled here", keep_stack(stack)}, {"the queue pair was destroyed here", cq.left->destroyed}});
}

void report_overrun(const CompletionQueue& cq) {
  report(rule("cq-overrun"),
         text("%s: a completion found no room among %d entries", cq.name.c_str(), cq.entries),
         {{"made here", cq.created}});
}

void check_iterator(ibv_cq_ex* cq) {
  original = {cq->start_poll, cq->next_poll, cq->end_poll};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  cq->end_poll = end_poll;
}

void check_completions(rdma_core::ContextOps& table) {
  table.poll_cq = poll_cq;
  table.req_notify_cq = req_notify_cq;
  table.cq_event = cq_event;
  table.async_event = async_event;
}

}  // namespace verbena::check
