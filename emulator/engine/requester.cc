// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/clock.h"
#include "engine/completion.h"
#include "engine/datagram.h"
#include "engine/device_attributes.h"
#include "engine/error_flow.h"
#include "engine/key_errors.h"
#include "engine/memory_requests.h"
#include "engine/program_enum.h"
#include "engine/psn.h"
#include "engine/region_pages.h"
#include "engine/responder.h"
#include "engine/small_send.h"
#include "engine/streaming.h"
#include "engine/timers.h"
#include "engine/xrc.h"
#include "fabric/hazards.h"
#include "observe/log.h"

namespace verbena {
namespace {

// While requests wait, and nobody polls, the service thread looks at them this often.
constexpr int64_t kShortTick = 200'000;
// A request that found no receive WQE is not tried again sooner than this: the peer posts several meanwhile,
// and the two do not wear out one cache line between them.
constexpr int64_t kReceivePause = 5'000;
// So long an XRC_RECV queue pair may take to go over from a process that has ended to another (xrc_openings.h).
constexpr uint64_t kSuccession = 5'000'000'000;
// A request whose peer has been asked to wake us is looked at this often all the same.
constexpr int64_t kLongTick = 20'000'000;

bool takes_requests(uint8_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

uint8_t peer_type(ibv_qp_type type) { return type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : type; }

// The peer takes its receives from an SRQ. A message that was in the middle when this process began anew with
// the same generation goes on with the WQE it has.
bool find_shared_receives(PeerPath& path, uint32_t index) {
  SharedSrq* srq = path.adapter->view().srq(index);
  if (srq == nullptr || srq->in_use.load(std::memory_order_acquire) == 0) return false;
  path.shared_receives = SharedReceiveRing::of(path.adapter->view(), *srq);
  path.receive_pd = srq->pd;
  path.in_hand = path.qp->srq_slot.load(std::memory_order_relaxed);
  return path.shared_receives.order_words != nullptr && path.in_hand <= path.shared_receives.slots();
}

// The peer's receives and completions. An XRC request's are its SRQ's (xrc.h).
VendorError find_receives(Qp& qp) {
  PeerPath& path = qp.path;
  const SharedQp& there = *path.qp;
  const SegmentView& view = path.adapter->view();
  SharedCq* cq = view.cq(there.recv_cq);
  if (cq == nullptr || cq->alive.load(std::memory_order_acquire) == 0) return VendorError::peer_not_ready;
  path.completion_queue = cq;
  path.completions = CompletionRing::of(view, *cq, &qp.peer_head);
  if (path.completions.entries == nullptr) return VendorError::peer_not_ready;
  path.receives = ReceiveRing::of(view, there);
  path.memory = path.adapter.get();
  path.receive_pd = path.remote_pd = there.pd;
  path.shared_receives = {};
  path.in_hand = 0;
  if (there.srq != 0 && !find_shared_receives(path, there.srq - 1)) return VendorError::peer_not_ready;
  path.taken = there.rq_taken.load(std::memory_order_relaxed);
  path.has_landed = false;
  return VendorError::none;
}

// Finds the peer right or says why not. The caller is on a visit.
VendorError check_path_slowly(Qp& qp, uint64_t gate_word) {
  PeerPath& path = qp.path;
  const Residence& home = qp.process->home();
  const Gate gate = Gate::unpack(gate_word);
  SharedQp& there = *path.qp;
  // Generation 0 is nobody's, but the peer's memory may say so: it is not the one that a path begins with.
  if (gate.generation == 0) return VendorError::peer_not_ready;
  if (there.birth != path.birth || !takes_requests(gate.state)) return VendorError::peer_not_ready;
  if (gate.generation != path.generation) {
    // Half of what follows may be found and the other half not: until all of it is, the path is of no generation.
    path.generation = 0;
    if (there.type != peer_type(qp.type) || there.dest_qpn != qp.shared->qpn ||
        there.dest_slot != home.slot() || there.dest_slot_generation != home.generation() ||
        there.dest_index != qp.index || there.dest_birth != qp.shared->birth)
      return VendorError::peer_mismatch;
    const bool fed = there.feeding_generation.load(std::memory_order_relaxed) == gate.generation;
    const uint32_t expected = fed ? there.expected_psn.load(std::memory_order_relaxed) : there.rq_psn;
    // Without acknowledgements messages may have been lost: a new one begins where it begins (rxe_resp.c,
    // check_psn()).
    if (is_acknowledged(qp.type) && expected != qp.send_psn) return VendorError::peer_mismatch;
    if (!qp.xrc_targets)
      if (const VendorError error = find_receives(qp); error != VendorError::none) return error;
    if (there.gate.load(std::memory_order_acquire) >> 8 != gate.generation)
      return VendorError::peer_not_ready;
    there.feeding_generation.store(gate.generation, std::memory_order_relaxed);
    path.generation = gate.generation;
    path.established = false;
  }
  if (gate.state == IBV_QPS_RTR && !path.established) {
    path.established = true;
    there.sticky.fetch_or(kStickyCommEst, std::memory_order_acq_rel);
    path.adapter->view().header().attention.store(1, std::memory_order_release);
    path.adapter->kick();
  }
  return VendorError::none;
}

VendorError check_path(Qp& qp) {
  PeerPath& path = qp.path;
  if (!ports_up(qp)) return VendorError::port_down;
  if (!path.adapter->alive(qp.process->directory())) return VendorError::peer_gone;
  const uint64_t gate = path.qp->gate.load(std::memory_order_acquire);
  if (gate == path.gate && gate != 0) return VendorError::none;
  const VendorError error = check_path_slowly(qp, gate);
  path.gate = error == VendorError::none ? gate : 0;
  const bool ordinary =
      path.gate != 0 && qp.type == IBV_QPT_RC && path.receives.ready != nullptr && qp.may_land;
  path.small_size = ordinary ? path.completions.inline_size() : 0;
  return error;
}

enum class Step : uint8_t { kFinished, kFailed, kWaits };

// The request completes with an error, and the QP goes to ERR, or to SQE.
Step fail(Qp& qp, const SendRequest& request, VendorError error) {
  const auto* text = find_vendor_error(static_cast<uint32_t>(error));
  VERBENA_WARN("QP 0x%06x: %s (wr_id 0x%llx) fails: %s: %s", qp.shared->qpn,
               find_send_operation(request.opcode)->name, static_cast<unsigned long long>(request.wr_id),
               text->name, text->text);
  complete_send(qp, request, error);
  qp.sq_next = request.number + 1;
  qp.waiting = Waiting::kNothing;
  if (!is_acknowledged(qp.type))
    enter_send_queue_error(qp);
  else
    enter_error(qp);
  return Step::kFailed;
}

// Waits, or fails when the time is over. `patience_ns`: from the first time on.
Step wait(Qp& qp, const SendRequest& request, Waiting what, VendorError reason, uint64_t patience_ns) {
  if (qp.waiting != what) {
    if (patience_ns == 0) return fail(qp, request, reason);
    qp.waiting = what;
    qp.give_up_at = deadline_after(patience_ns);
  } else if (qp.give_up_at != kEndOfTime && now_ns() >= qp.give_up_at) {
    return fail(qp, request, reason);
  }
  qp.wait_reason = reason;
  qp.try_again_at = what == Waiting::kReceive ? now_ns() + kReceivePause : 0;
  std::atomic<uint32_t>& count = what == Waiting::kReceive ? qp.shared->rnr_naks : qp.shared->retries;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return Step::kWaits;
}

// The request is done.
void finish(Qp& qp, const SendRequest& request) {
  qp.waiting = Waiting::kNothing;
  advance(qp, request.length, packets_of(request.length, qp.mtu));
  qp.sq_next = request.number + 1;
  if (qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0)
    complete_send(qp, request, VendorError::none);
}

// One try, on a visit to the peer: both sides' memory stays registered for as long as it lasts.
Response attempt(Qp& qp, const SendOperation& operation, SendRequest& request, VendorError* unreachable) {
  VendorError target = VendorError::none;
  if (qp.xrc_targets) {
    if (qp.waiting == Waiting::kTransport) follow_responder(qp);
    target = select_target(qp, request.remote_srqn);
  }
  const Visit visit(qp.process->directory(), qp.process->home().slot(), qp.path.adapter->slot());
  std::optional<Visit> visit_to_target;
  if (qp.xrc_targets && target == VendorError::none)
    visit_to_target.emplace(qp.process->directory(), qp.process->home().slot(), qp.path.memory->slot());
  iovec ranges[PeerAdapter::kMaxRanges];
  LocalBytes local{ranges, 0};
  local.error = find_local_bytes(qp, operation, request, ranges, &local.count);
  *unreachable = VendorError::none;
  if (local.error != VendorError::none && operation.sges != SgeUse::scatter)
    return {Answer::kLocal, local.error};
  const uint64_t generation = qp.path.generation;
  *unreachable = check_path(qp);
  if (*unreachable != VendorError::none) return {};
  if (qp.xrc_targets) {
    if (target == VendorError::none) target = check_target(qp);
    if (target == VendorError::remote_srq_unknown) return refuse(qp.path, target);
    *unreachable = target;
    if (target != VendorError::none) return {};
  }
  // The peer began anew: it knows nothing of the slices it has got.
  if (qp.path.generation != generation) request.done = 0;
  const Response response = respond(qp, operation, request, local);
  // The own completion first: whom the peer's event wakes may have answered before this thread runs again,
  // and must not find that answer completed and the request not.
  if (response.answer == Answer::kAck) finish(qp, request);
  raise_event_due(qp.path);
  return response;
}

// Nobody is at the other end. What is wrong with the request itself is found before it would leave.
Response without_path(Qp& qp, const SendOperation& operation, const SendRequest& request,
                      VendorError* unreachable) {
  const uint32_t home = qp.process->home().slot();
  const Visit visit(qp.process->directory(), home, home);
  iovec ranges[PeerAdapter::kMaxRanges];
  size_t count;
  const VendorError error = find_local_bytes(qp, operation, request, ranges, &count);
  *unreachable = VendorError::no_path;
  if (error == VendorError::none || operation.sges == SgeUse::scatter) return {Answer::kGone};
  *unreachable = VendorError::none;
  return {Answer::kLocal, error};
}

// The message has left and was not taken: an unacknowledged sender knows nothing of that.
bool is_lost(VendorError unreachable, const Response& response) {
  return unreachable != VendorError::none || response.answer == Answer::kRnr ||
         response.answer == Answer::kNak || response.answer == Answer::kGone;
}

// Binding and invalidating here need no peer, and no PSN.
Step carry_out_here(Qp& qp, const SendRequest& request) {
  const Response response = carry_out_locally(qp, request);
  if (response.answer == Answer::kLocal) return fail(qp, request, response.error);
  if (response.answer == Answer::kBusy) {
    qp.waiting = Waiting::kTurn;
    qp.give_up_at = kEndOfTime;
    return Step::kWaits;
  }
  qp.waiting = Waiting::kNothing;
  qp.sq_next = request.number + 1;
  complete_send(qp, request, VendorError::none);
  return Step::kFinished;
}

Step carry_out(Qp& qp, SendRequest& request) {
  if (is_local(request.opcode)) return carry_out_here(qp, request);
  const SendOperation& operation = *find_send_operation(request.opcode);
  const SendLimits limits = send_limits(qp);
  if (const VendorError error = check_send_length(limits, operation, request.length);
      error != VendorError::none)
    return fail(qp, request, error);

  if (qp.datagrams) {
    if (const VendorError error = send_datagram(qp, operation, request); error != VendorError::none)
      return fail(qp, request, error);
    finish(qp, request);
    raise_datagram_events(qp);
    return Step::kFinished;
  }
  if (operation.awaits_response && qp.attr.max_rd_atomic == 0)
    return fail(qp, request, VendorError::too_many_outstanding_reads);
  PeerPath& path = qp.path;
  const auto wait_for_transport = [&](VendorError reason) {
    uint64_t patience = transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt);
    // A responder whose maker has ended is still there; only whoever takes it over must notice first.
    if (qp.xrc_targets && path.adapter && qp.waiting != Waiting::kTransport && follow_responder(qp))
      patience = std::max(patience, kSuccession);
    return wait(qp, request, Waiting::kTransport, reason, patience);
  };
  VendorError unreachable = VendorError::none;
  const uint32_t done_before = request.done;
  const Response response = path.adapter ? attempt(qp, operation, request, &unreachable)
                                         : without_path(qp, operation, request, &unreachable);
  if (!is_acknowledged(qp.type) && is_lost(unreachable, response)) {
    finish(qp, request);
    return Step::kFinished;
  }
  if (unreachable != VendorError::none) return wait_for_transport(unreachable);
  switch (response.answer) {
    case Answer::kAck:
      break;
    case Answer::kPartial:
      // Not a byte: the responder has still to scatter what this would overtake, and a silent one is silent.
      if (request.done == done_before) return wait_for_transport(VendorError::peer_silent);
      qp.waiting = Waiting::kSlice;
      qp.give_up_at = kEndOfTime;
      return Step::kWaits;
    case Answer::kBusy: {
      // Turns are short. Who never gets one meets a holder that is stopped, or a damaged word: a silent responder.
      constexpr uint64_t kLongestTurn = 1'000'000'000;
      return wait(qp, request, Waiting::kTurn, VendorError::peer_silent,
                  std::max(kLongestTurn, transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt)));
    }
    case Answer::kRnr:
      return wait(qp, request, Waiting::kReceive, VendorError::no_receive_posted,
                  rnr_failure_ns(qp.attr.rnr_retry, path.qp->min_rnr_timer));
    case Answer::kNak:
    case Answer::kLocal:
      return fail(qp, request, response.error);
    case Answer::kGone:
      return wait_for_transport(VendorError::peer_gone);
  }
  return Step::kFinished;
}

// Keeps a request that cannot be carried out within the call.
void keep(Qp& qp, const SendRequest& request) {
  const uint64_t place = request.number & (qp.sq.size() - 1);
  SendRequest& kept = qp.sq[place];
  kept = request;
  if (request.is_inline) {
    std::byte* copy = qp.sq_inline.data() + place * qp.sq_inline_stride;
    ibv_sge& sge = qp.sq_sges[place * qp.cap.max_send_sge];
    sge = {reinterpret_cast<uint64_t>(copy), request.length, 0};
    for (uint32_t i = 0; i < request.sge_count; ++i) {
      std::memcpy(copy, reinterpret_cast<const void*>(request.sges[i].addr), request.sges[i].length);
      copy += request.sges[i].length;
    }
    kept.sges = &sge;
    kept.sge_count = request.length != 0 ? 1 : 0;
  } else {
    ibv_sge* copy = qp.sq_sges.data() + place * qp.cap.max_send_sge;
    std::copy_n(request.sges, request.sge_count, copy);
    kept.sges = copy;
  }
  if (qp.datagrams) keep_address(qp, kept);
}

}  // namespace

SendRequest read_request(const Qp& qp, const ibv_send_wr& wr, uint64_t number) {
  SendRequest request{};
  request.wr_id = wr.wr_id;
  request.number = number;
  request.opcode = wr.opcode;
  request.flags = wr.send_flags;
  request.immediate = wr.imm_data;
  request.sges = wr.sg_list;
  request.sge_count = static_cast<uint32_t>(wr.num_sge);
  request.length = static_cast<uint32_t>(std::min<uint64_t>(message_length(wr), UINT32_MAX));
  request.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (qp.type == IBV_QPT_XRC_SEND) request.remote_srqn = wr.qp_type.xrc.remote_srqn;
  if (qp.datagrams) {
    const ibv_ah* ah = wr.wr.ud.ah;
    request.ah = ah != nullptr ? reinterpret_cast<const AhOfProgram*>(ah)->emulated : nullptr;
    request.remote_qpn = wr.wr.ud.remote_qpn;
    request.remote_qkey = wr.wr.ud.remote_qkey;
  } else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.remote_address = wr.wr.atomic.remote_addr;
    request.rkey = wr.wr.atomic.rkey;
    request.compare_add = wr.wr.atomic.compare_add;
    request.swap = wr.wr.atomic.swap;
  } else if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) {
    request.remote_address = wr.wr.rdma.remote_addr;
    request.rkey = wr.wr.rdma.rkey;
  }
  read_memory_wr(wr, &request);
  return request;
}

namespace {

[[gnu::noinline]] int post_in_general(Qp& qp, const ibv_send_wr& wr, ibv_qp_state state, bool idle) {
  const char* why = nullptr;
  if (int error = check_send_wr(send_limits(qp), qp.type, wr, &why); error != 0) {
    VERBENA_WARN("ibv_post_send: QP 0x%06x, wr_id 0x%llx: opcode %u, %d SGEs, flags 0x%x: %s", qp.shared->qpn,
                 static_cast<unsigned long long>(wr.wr_id), number_in(wr.opcode), wr.num_sge, wr.send_flags,
                 why);
    return error;
  }
  if (qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size) {
    VERBENA_WARN(
        "ibv_post_send: QP 0x%06x: send queue full: %llu posted, %llu freed by polled completions, room for "
        "%llu",
        qp.shared->qpn, static_cast<unsigned long long>(qp.sq_posted),
        static_cast<unsigned long long>(qp.sq_freed.load()), static_cast<unsigned long long>(qp.sq_size));
    return ENOMEM;
  }
  SendRequest request = read_request(qp, wr, qp.sq_posted);
  ++qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
    complete_send(qp, request, VendorError::flushed);
    qp.sq_next = qp.sq_posted;
    return 0;
  }
  if (idle && state == IBV_QPS_RTS) {
    if (carry_out(qp, request) != Step::kWaits) return 0;
  }
  keep(qp, request);
  if (state == IBV_QPS_RTS) qp.process->add_pending(&qp);
  return 0;
}

int post_one(Qp& qp, const ibv_send_wr& wr, Visit& visit) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTS && usable(*qp.context) != 0) return EIO;
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE && state != IBV_QPS_ERR) {
    VERBENA_WARN("ibv_post_send: QP 0x%06x is in state %d: requests are taken from RTS on", qp.shared->qpn,
                 state);
    return EINVAL;
  }
  const bool idle = qp.sq_next == qp.sq_posted;
  if (idle && state == IBV_QPS_RTS && send_small(qp, wr, visit)) return 0;
  visit.end();
  return post_in_general(qp, wr, state, idle);
}

}  // namespace

VendorError find_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request,
                             iovec* ranges, size_t* count) {
  *count = 0;
  if (request.is_inline) {
    for (uint32_t i = 0; i < request.sge_count; ++i)
      if (request.sges[i].length != 0)
        ranges[(*count)++] = {reinterpret_cast<void*>(request.sges[i].addr), request.sges[i].length};
    return VendorError::none;
  }
  const MemoryUse use =
      operation.sges == SgeUse::scatter ? MemoryUse::local_scatter : MemoryUse::local_gather;
  for (uint32_t i = 0; i < request.sge_count; ++i) {
    const ibv_sge& sge = request.sges[i];
    if (sge.length == 0) continue;
    const Translation place =
        translate(qp.process->view(), sge.lkey, false, qp.pd->handle, use, sge.addr, sge.length);
    if (place.check != KeyCheck::kOk) {
      VERBENA_WARN("QP 0x%06x: %s, SGE %u: lkey 0x%x, address 0x%llx, length %u: %s", qp.shared->qpn,
                   operation.name, i, sge.lkey, static_cast<unsigned long long>(sge.addr), sge.length,
                   find_vendor_error(static_cast<uint32_t>(local_key_error(place.check)))->text);
      return local_key_error(place.check);
    }
    // Short ones are copied by the CPU: an absent page must not be the program's fault.
    if (place.on_demand && (request.length <= kLandingSize || qp.datagrams) &&
        bring_in_pages(place.address, sge.length, operation.sges == SgeUse::scatter) != 0)
      return VendorError::local_memory_gone;
    ranges[(*count)++] = {reinterpret_cast<void*>(place.address), sge.length};
  }
  return VendorError::none;
}

void complete_send(Qp& qp, const SendRequest& request, VendorError error) {
  if (error == VendorError::none && !qp.signal_all && (request.flags & IBV_SEND_SIGNALED) == 0) return;
  append_send_completion(qp, {request.wr_id, request.number, request.opcode, request.length, error});
}

void append_send_completion(Qp& qp, const SendCompletion& completion) {
  Cq& cq = *qp.send_cq;
  const Claim claim = claim_completion(cq.ring, qp.process->home().worker());
  if (claim.entry == nullptr && cq.ring.ignores_overrun()) return;
  if (claim.entry == nullptr) {
    cq.shared->overrun.store(1, std::memory_order_release);
    qp.process->call_attention();
    return;
  }
  const bool failed = completion.error != VendorError::none;
  Cqe& entry = *claim.entry;
  entry.qp_index = qp.index;
  entry.qp_birth = qp.shared->birth;
  entry.index = static_cast<uint32_t>(completion.number);
  entry.byte_len = completion.length;
  entry.status = static_cast<uint8_t>(
      failed ? find_vendor_error(static_cast<uint32_t>(completion.error))->status : IBV_WC_SUCCESS);
  entry.opcode = static_cast<uint8_t>(find_send_operation(completion.opcode)->completion);
  entry.vendor_err = static_cast<uint8_t>(completion.error);
  entry.flags = 0;
  entry.wr_id = completion.wr_id;
  publish_completion(cq.ring, claim, CqeKind::kPublished);
  raise_completion_event(*cq.shared, qp.process->self(), failed);
}

namespace {

// Whoever posts the next receive over there wakes this process. An XRC SRQ's owner is told at the SRQ, anybody else at
// the queue pair. False: it cannot be asked.
bool ask_to_be_woken(Qp& qp) {
  const SharedReceiveRing& shared = qp.path.shared_receives;
  if (qp.xrc_targets)
    return qp.path.target != nullptr && shared.ask_to_be_woken(qp.process->home().worker());
  qp.path.qp->feeder_waits.store(1, std::memory_order_seq_cst);
  if (shared.shared != nullptr) shared.shared->feeders_wait.store(1, std::memory_order_seq_cst);
  return true;
}

// Nobody has posted since. Of an SRQ somebody else may have got what was posted.
bool is_asked_for(const Qp& qp) {
  if (qp.xrc_targets)
    return qp.path.target != nullptr && qp.path.shared_receives.is_asked_for(qp.process->home().worker());
  return qp.path.shared_receives.shared == nullptr ||
         qp.path.qp->feeder_waits.load(std::memory_order_seq_cst) != 0;
}

}  // namespace

int64_t progress_send_queue(Qp& qp, bool from_service) {
  while (qp.sq_next != qp.sq_posted) {
    const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
    const bool begun = qp.waiting != Waiting::kNothing;
    if (state != IBV_QPS_RTS && !(state == IBV_QPS_SQD && begun)) break;
    if (qp.waiting == Waiting::kReceive && !from_service && now_ns() < qp.try_again_at)
      return qp.try_again_at;
    const bool asks_for_waking = from_service && qp.waiting == Waiting::kReceive && qp.path.adapter;
    // Posting a receive looks at the flag without a fence: a receive posted just now may have missed it, so
    // we come back soon once more before we rely on it.
    const bool just_asked = asks_for_waking && !(qp.feeder_flag_set && is_asked_for(qp));
    if (just_asked) qp.feeder_flag_set = ask_to_be_woken(qp);
    if (carry_out(qp, qp.sq[qp.sq_next & (qp.sq.size() - 1)]) != Step::kWaits) {
      qp.feeder_flag_set = false;
      continue;
    }
    // One slice a visit: others want their turn.
    if (qp.waiting == Waiting::kSlice) return now_ns() + (from_service ? 0 : kShortTick);
    const bool slow =
        (qp.feeder_flag_set && !just_asked) || (from_service && qp.waiting == Waiting::kTransport);
    int64_t tick = kShortTick;
    if (slow) {
      tick = kLongTick;
      if (qp.waiting == Waiting::kReceive && qp.path.qp != nullptr)
        tick = std::max(tick, static_cast<int64_t>(rnr_timer_ns(qp.path.qp->min_rnr_timer)));
    }
    return std::min(now_ns() + tick, qp.give_up_at);
  }
  if (qp.drain_event_due && qp.state.load(std::memory_order_relaxed) == IBV_QPS_SQD &&
      qp.waiting == Waiting::kNothing) {
    qp.drain_event_due = false;
    raise_qp_event(qp, IBV_EVENT_SQ_DRAINED);
  }
  return kEndOfTime;
}

SendLimits send_limits(const Qp& qp) {
  SendLimits limits;
  limits.max_sge = qp.cap.max_send_sge;
  limits.max_sge_read = static_cast<uint32_t>(qp.context->device->limits.max_sge_rd);
  limits.max_inline = qp.cap.max_inline_data;
  limits.max_message = static_cast<uint32_t>(qp.context->device->limits.max_msg_sz);
  return limits;
}

int post_list(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr, Visit& visit) {
  for (; wr != nullptr; wr = wr->next) {
    const int error = post_one(qp, *wr, visit);
    if (error == 0) continue;
    *bad_wr = wr;
    return error;
  }
  return 0;
}

int post_send(Qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (qp->process->dead()) {
    *bad_wr = wr;
    return EIO;
  }
  act_on_sticky_if_any(*qp);
  received_in_a_row = 0;
  // Said before the lock is taken, which is a full fence all the same. Not while waiting for it: its holder
  // may be waiting for visits to end.
  Visit visit;
  const uint32_t target = qp->expected_target.load(std::memory_order_relaxed);
  if (target != UINT32_MAX) visit.announce(qp->process->directory(), qp->process->home().slot(), target);
  if (qp->send_lock.try_lock()) [[likely]] {
    Visit::confirm_after_locking();
  } else {
    visit.end();
    qp->send_lock.lock();
  }
  const int error = post_list(*qp, wr, bad_wr, visit);
  qp->send_lock.unlock();
  return error;
}

}  // namespace verbena
