// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/refusal.h"

#include <algorithm>
#include <cstring>

#include "engine/objects/network.h"
#include "engine/objects/process.h"
#include "engine/rules/send_rules.h"
#include "wire/net_address.h"

namespace verbena {
namespace {

// A drop for want of a receive request is a part of unreliable service; anything else is somebody's mistake.
LogLevel level_of(RefusalKind kind) {
  return kind == RefusalKind::kNoReceive ? LogLevel::kInfo : LogLevel::kWarn;
}

// Of diagnostics.def.
const char* code_of(const RequestRefusal& refusal) {
  switch (refusal.kind) {
    case RefusalKind::kNoReceive:
      return "datagram_no_receive";
    case RefusalKind::kNoSpace:
      return "datagram_no_room";
    case RefusalKind::kOtherQkey:
      return "datagram_qkey";
    case RefusalKind::kOtherSource:
      return "peer_source";
    case RefusalKind::kOtherPsn:
      return "peer_psn";
    case RefusalKind::kNotReady:
      return "peer_state";
    case RefusalKind::kNoQueuePair:
      return "datagram_stray";
    case RefusalKind::kNoDatagrams:
      return "datagram_other_type";
    case RefusalKind::kRequest:
      break;
  }
  return find_vendor_error(refusal.vendor_err)->name;
}

bool is_own(Process& process, const PeerAdapter& responder) {
  return responder.slot() == process.membership().slot();
}

RequestRefusal refusal_of(const RequesterContext& requester, RefusalKind kind) {
  const SharedQp& there = *requester.path.qp;
  RequestRefusal refusal{};
  refusal.kind = kind;
  refusal.qpn = there.qpn;
  refusal.qp_pd = requester.path.remote_pd;
  refusal.source_qpn = requester.qpn;
  refusal.max_dest_rd_atomic = there.max_dest_rd_atomic;
  name_source(*requester.process, requester.origin, &refusal);
  return refusal;
}

// What the responder has for the key. `address` and `length` are what the request wanted.
void describe_region(const SegmentView& view, uint32_t key, RequestRefusal* refusal) {
  const MemoryKey parts = MemoryKey::unpack(key);
  refusal->key = key;
  const SharedMr* const mr = parts.index != 0 ? view.mr(parts.index) : nullptr;
  if (mr == nullptr || parts.index >= view.keys_used() ||
      mr->valid.load(std::memory_order_acquire) != (kKeyValid | parts.tag))
    return;
  refusal->key_is_known = true;
  refusal->region_begin = mr->iova;
  refusal->region_length = mr->length;
  refusal->region_access = mr->access;
  refusal->region_pd = mr->pd;
}

uint32_t key_of(const Request& request) {
  const SendOperation* const operation = find_send_operation(request.opcode);
  return operation != nullptr && operation->carries_invalidate ? request.immediate : request.rkey;
}

bool is_of_receive_request(VendorError error) {
  return error >= VendorError::lkey_unknown && error <= VendorError::local_memory_gone;
}

}  // namespace

bool is_explained(const PeerAdapter& responder, RefusalKind kind) {
  const LogLevel level = level_of(kind);
  return logs(level) || responder.view().header().explained >= static_cast<uint32_t>(level);
}

void name_source(Process& process, const RequestOrigin& origin, RequestRefusal* refusal) {
  auto& membership = process.membership();
  if (origin.node != nullptr && *origin.node != kThisNode) {
    refusal->is_remote = true;
    std::memcpy(refusal->source_address, origin.node->bytes.data(), sizeof refusal->source_address);
    return;
  }
  const uint32_t slot = origin.node != nullptr ? origin.slot : membership.slot();
  if (slot < kMaxSlots)
    refusal->source_pid = membership.directory().slot(slot).pid.load(std::memory_order_relaxed);
}

void explain(Process& process, PeerAdapter& responder, const RequestRefusal& refusal) {
  if (!is_sparse(refusal.count)) return;
  const LogLevel level = level_of(refusal.kind);
  const bool own = is_own(process, responder);
  const SegmentHeader& header = responder.view().header();
  if (logs(level)) {
    char text[400];
    describe_refusal(refusal, own ? 0 : header.pid, text, sizeof text);
    log_line(level, "%s [%s]", text, code_of(refusal));
  }
  if (!own && header.explained >= static_cast<uint32_t>(level))
    responder.explain(refusal, process.membership().worker());
}

void explain_refusal(const RequesterContext& requester, const Request& request, VendorError error,
                     const RefusedPart& part) {
  const PeerPath& path = requester.path;
  if (!is_explained(*path.adapter, RefusalKind::kRequest)) return;
  RequestRefusal refusal = refusal_of(requester, RefusalKind::kRequest);
  refusal.opcode = static_cast<uint8_t>(request.opcode);
  refusal.vendor_err = static_cast<uint8_t>(error);
  refusal.length = request.length;
  refusal.address = request.remote_address;
  refusal.got = error == VendorError::remote_srq_unknown ? request.remote_srqn : request.length;
  refusal.expected = part.length;
  if (error == VendorError::remote_qp_no_right) {
    refusal.region_access = path.qp->access;
  } else if (is_of_receive_request(error)) {
    refusal.address = part.address;
    refusal.qp_pd = path.receive_pd;
    describe_region(path.memory->view(), part.lkey, &refusal);
  } else if (path.memory != nullptr) {
    describe_region(path.memory->view(), key_of(request), &refusal);
  }
  if (path.qp->type == IBV_QPT_UC) refusal.count = path.qp->dropped.load(std::memory_order_relaxed) + 1;
  explain(*requester.process, *path.adapter, refusal);
}

void explain_lost_message(const RequesterContext& requester, const Request& request) {
  const PeerPath& path = requester.path;
  if (!is_explained(*path.adapter, RefusalKind::kNoReceive)) return;
  RequestRefusal refusal = refusal_of(requester, RefusalKind::kNoReceive);
  refusal.opcode = static_cast<uint8_t>(request.opcode);
  refusal.length = request.length;
  refusal.count = path.qp->dropped.load(std::memory_order_relaxed) + 1;
  explain(*requester.process, *path.adapter, refusal);
}

namespace {

// Its number is given back before it stops taking requests. A program may destroy a queue pair that the peer
// still sends to: no mistake.
bool is_being_destroyed(const RequesterContext& requester) {
  const PeerPath& path = requester.path;
  QpnEntry found;
  return !requester.process->directory().find_qpn(path.qp->qpn, &found) || found.slot != path.adapter->slot();
}

}  // namespace

void explain_unreachable(const RequesterContext& requester, VendorError error) {
  const PeerPath& path = requester.path;
  if (path.adapter == nullptr || path.qp == nullptr || !is_explained(*path.adapter, RefusalKind::kNotReady) ||
      !path.adapter->alive(requester.process->directory()))
    return;
  const SharedQp& there = *path.qp;
  const ResponderState state = ResponderState::unpack(there.responder_state.load(std::memory_order_acquire));
  if (there.in_use.load(std::memory_order_acquire) == 0 || there.incarnation != path.incarnation ||
      is_being_destroyed(requester))
    return;
  RequestRefusal refusal = refusal_of(requester, RefusalKind::kNotReady);
  refusal.opcode = UINT8_MAX;
  refusal.expected = state.state;
  if (error == VendorError::peer_mismatch) {
    const bool fed = there.requester_generation.load(std::memory_order_relaxed) == state.generation;
    const uint32_t psn = fed ? there.expected_psn.load(std::memory_order_relaxed) : there.rq_psn;
    const bool other_source = there.dest_qpn != requester.qpn || psn == requester.psn;
    refusal.kind = other_source ? RefusalKind::kOtherSource : RefusalKind::kOtherPsn;
    refusal.expected = other_source ? there.dest_qpn : psn;
    refusal.got = other_source ? requester.qpn : requester.psn;
  } else if (error != VendorError::peer_not_ready || state.state == IBV_QPS_RTR ||
             state.state == IBV_QPS_RTS) {
    return;
  }
  explain(*requester.process, *path.adapter, refusal);
}

void log_refusals(Process& process) {
  Refusals& refusals = process.view().refusals();
  const NodeDirectory& directory = process.directory();
  const auto is_gone = [&directory](uint32_t worker) { return !directory.worker_alive(worker); };
  RequestRefusal refusal;
  // No more than the ring holds: peers may go on adding.
  for (uint32_t i = 0; i < Refusals::kEntries && refusals.take(&refusal, is_gone); ++i) {
    char text[400];
    describe_refusal(refusal, 0, text, sizeof text);
    VERBENA_LOG_AT(level_of(refusal.kind), "%s [%s]", text, code_of(refusal));
  }
  if (const uint64_t lost = refusals.lost.exchange(0, std::memory_order_relaxed); lost != 0)
    VERBENA_WARN(refusals_suppressed, "%llu further refusals came faster than they were logged",
                 static_cast<unsigned long long>(lost));
}

}  // namespace verbena
