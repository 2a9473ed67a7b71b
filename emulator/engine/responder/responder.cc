// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/responder.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/completion/completion_writer.h"
#include "engine/responder/bounced_message.h"
#include "engine/responder/invalidation.h"
#include "engine/responder/mapped_bytes.h"
#include "engine/responder/placement.h"
#include "engine/responder/refusal.h"
#include "engine/responder/response_event.h"
#include "engine/responder/tag_match.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/key_errors.h"
#include "engine/rules/psn.h"
#include "engine/rules/small_copy.h"

namespace verbena {
namespace {

// The responder's QP goes to ERR. The owner does that: sets the flag and wakes the owner.
void put_in_error(PeerPath& path, uint32_t pending_flags) {
  path.qp->pending_flags.fetch_or(pending_flags, std::memory_order_acq_rel);
  path.adapter->report(*path.qp);
}

// The receive WQE, or the tag, that the current message goes to.
struct Receive {
  const WqeSge* sges;
  uint32_t sge_count;
  uint8_t* bounce;
  uint32_t epoch;        // as in ReadyWord
  uint32_t length;       // bytes it takes, saturated
  MappedBytes header{};  // of a tag: where the headers of the message go, here
  iovec header_there{};  // and at the responder
};

Receive receive_of(const ReceiveWqe& wqe, std::byte* bounce, uint32_t max_sge, uint32_t epoch,
                   uint32_t length) {
  return {wqe.sge, std::min(wqe.sge_count, max_sge), reinterpret_cast<uint8_t*>(bounce), epoch, length};
}

// The keys of a tag's buffer are checked with each message.
Receive receive_of_tag(const PeerPath& path) {
  SharedTag& tag = taken_tag(path);
  const uint32_t skipped = path.tag_message.skipped;
  const auto offset = static_cast<uint64_t>(reinterpret_cast<std::byte*>(&tag) -
                                            reinterpret_cast<std::byte*>(path.tags.tags));
  const uint64_t there = path.tags.address + offset + offsetof(SharedTag, header);
  const uint64_t length = uint64_t{skipped} + std::atomic_ref(tag.sge.length).load(std::memory_order_relaxed);
  return {&tag.sge,
          1,
          nullptr,
          ReadyWord::kNeverValid,
          static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX)),
          {tag.header},
          {reinterpret_cast<void*>(there), skipped}};
}

// A WQE of an SRQ is taken when it is first asked for, and is the current WQE until the message is complete.
bool next_shared_receive(RequesterContext& requester, Receive* out) {
  PeerPath& path = requester.path;
  const SharedReceiveRing& ring = path.shared_receives;
  if (has_taken_tag(path)) {
    *out = receive_of_tag(path);
    return true;
  }
  if (path.current_wqe == 0) {
    uint32_t slot;
    bool limit_reached;
    if (!ring.take(requester.process->membership().worker(), &slot, &limit_reached)) return false;
    if (path.target == nullptr)
      keep_taken_wqe(path, slot);
    else
      path.current_wqe = slot + 1;
    if (limit_reached) path.memory->report(*ring.shared);
  }
  const ReceiveWqe& wqe = ring.wqe(path.current_wqe - 1);
  *out = receive_of(wqe, ring.bounce(path.current_wqe - 1), ring.max_sge, wqe.epoch, wqe.length);
  return true;
}

// False: there is none (RNR).
bool next_receive(RequesterContext& requester, Receive* out) {
  PeerPath& path = requester.path;
  if (path.shared_receives.shared != nullptr) return next_shared_receive(requester, out);
  ReadyWord ready;
  if (path.receives.ready == nullptr || !path.receives.peek(path.taken, &ready, &path.known_ready))
    return false;
  *out = receive_of(path.receives.wqe(path.taken), path.receives.bounce(path.taken), path.receives.max_sge,
                    ready.epoch, ready.length);
  return true;
}

Arrival arrival_of(const SendOperation& operation, const Request& request) {
  return {request.flags,
          request.length,
          request.immediate,
          operation.received,
          operation.carries_immediate,
          operation.carries_invalidate};
}

// There is no current WQE any more. Before the completion is published: a process that dies in between leaves
// a slot that its owner finds again, not one that completes twice.
void let_go(PeerPath& path) {
  if (path.current_wqe != 0 && path.target == nullptr) path.qp->srq_slot.store(0, std::memory_order_release);
  path.current_wqe = 0;
}

}  // namespace

bool complete_receive(RequesterContext& requester, const Arrival& arrival, bool eager,
                      const uint8_t* payload) {
  PeerPath& path = requester.path;
  const auto to = receive_cq(requester);
  // Not claim_cqe(): copying a claim as a whole right after its parts were stored is slow.
  const Claim claim = claim_completion(to.ring, to.worker);
  const Room room = claim.entry != nullptr ? Room::kClaimed : no_room(to);
  if (room == Room::kIgnored) {
    // The completion is lost. The message must not be: it cannot stay in the CQE.
    if (eager) return false;
    if (has_taken_tag(path))
      path.tags.abandon(tag_index(path.current_wqe - 1));
    else if (path.current_wqe != 0)
      path.shared_receives.abandon(path.current_wqe - 1);
    let_go(path);
    count_taken(path);
    return true;
  }
  if (room == Room::kOverrun) {
    // A CQ that fails ends its queue pairs. An XRC_RECV queue pair does not belong to the CQ of the SRQ.
    if (path.target != nullptr) put_in_error(path, kPendingOverrun);
    return false;
  }
  const bool solicited = (arrival.flags & IBV_SEND_SOLICITED) != 0;
  Completion completion{.qp_index = path.index,
                        .qp_incarnation = path.incarnation,
                        .index = static_cast<uint32_t>(path.taken),
                        .byte_len = arrival.length,
                        .immediate = arrival.immediate,
                        .status = static_cast<uint8_t>(arrival.status),
                        .opcode = static_cast<uint8_t>(arrival.opcode & ~IBV_WC_RECV),
                        .flags = kCqeReceive,
                        .vendor_err = static_cast<uint8_t>(arrival.error)};
  const bool tagged = matches_tags(path) && arrival.opcode == IBV_WC_RECV;
  if (tagged) [[unlikely]] {
    TagCompletion tag;
    describe_tag_completion(path, &completion, &tag);
    std::memcpy(claim.entry->payload, &tag, sizeof tag);
  }
  if (path.current_wqe != 0) {
    completion.flags |= kCqeFromShared;
    completion.index = path.current_wqe - 1;
    let_go(path);
  }
  uint8_t* bytes = claim.entry->payload;
  if (const XrcTarget* target = path.target; target != nullptr) {
    completion.flags |= kCqeXrc;
    completion.qp_index = target->index;
    completion.qp_incarnation = target->incarnation;
    const XrcSource source{path.qp->qpn, requester.qpn};
    std::memcpy(bytes, &source, sizeof source);
    bytes += sizeof source;
  }
  if (arrival.with_immediate) completion.flags |= kCqeWithImmediate;
  if (arrival.with_invalidate) completion.flags |= kCqeWithInvalidate;
  if (solicited) completion.flags |= kCqeSolicited;
  if (payload != nullptr) {
    completion.flags |= kCqeInline;
    copy_small(bytes, payload, arrival.length);
  } else if (arrival.bounced_at != nullptr) {
    std::memcpy(bytes, arrival.bounced_at, sizeof *arrival.bounced_at);
  }
  write_cqe(*claim.entry, completion);
  publish_cqe(to, claim, eager ? CqeKind::kEager : CqeKind::kPublished);
  prepare_next(path, claim, arrival.length, payload != nullptr);
  if (eager) note_eager(path, claim.position);
  count_taken(path);
  path.event_due = solicited || arrival.status != IBV_WC_SUCCESS ? 2 : 1;
  return true;
}

namespace {

// UC: a refused message is dropped, and changes neither the receive WQE nor the state of the QP (class D of
// vol. 1, 9.9.3; rxe_resp.c). Only an error of the receive WQE itself (class A) fails as for RC.
bool drops(const PeerPath& path, VendorError seen_here) {
  return path.qp->type == IBV_QPT_UC &&
         (seen_here == VendorError::receive_too_small || seen_here == VendorError::local_access);
}

// A failure that costs the receive WQE: its completion says what was wrong with it.
Response fail_receive(RequesterContext& requester, const SendOperation& operation, const Request& request,
                      VendorError seen_here, VendorError seen_there, const RefusedPart& part = {}) {
  PeerPath& path = requester.path;
  // A key of the request says more than the completion of the receive request, which has one status for all.
  explain_refusal(requester, request, seen_here == VendorError::local_access ? seen_there : seen_here, part);
  if (drops(path, seen_here)) return {Answer::kNak, seen_there};
  const auto* text = find_vendor_error(static_cast<uint32_t>(seen_here));
  // Before its completion can be polled: a thread that polls it finds the QP in ERR.
  path.qp->pending_flags.fetch_or(kPendingFatal, std::memory_order_acq_rel);
  note_receive_error(requester.process->directory(), *path.qp, text->status, seen_here);
  Arrival arrival = arrival_of(operation, request);
  arrival.status = text->status;
  arrival.error = seen_here;
  complete_receive(requester, arrival, false, nullptr);
  path.adapter->report(*path.qp);
  return {Answer::kNak, seen_there};
}

// Of several SGEs, one is at fault, and nobody knows which.
RefusedPart only_sge_of(const Receive& receive) {
  if (receive.sge_count != 1) return {};
  return {.lkey = receive.sges[0].lkey, .address = receive.sges[0].address, .length = receive.sges[0].length};
}

// SEND_WITH_INV: first the message is placed, then the key ends, then the completion is published.
VendorError invalidate_if_asked(const PeerPath& path, const SendOperation& operation,
                                const Request& request) {
  if (!operation.carries_invalidate) return VendorError::none;
  return invalidate_window(path.memory->view(), *path.qp, request.immediate);
}

// SEND_WITH_INV with a key that cannot be invalidated: class J of vol. 1, 9.9.6.3. The responder fails, and
// sends no NAK (rxe_resp.c, RESPST_ERR_INVALIDATE_RKEY, sets no syndrome either).
Response fail_invalidation(RequesterContext& requester, const SendOperation& operation,
                           const Request& request, VendorError error) {
  Response response = fail_receive(requester, operation, request, VendorError::local_access, error);
  response.answer = Answer::kSilence;
  return response;
}

// The response to a request whose bytes were not placed as a whole, for no fault of the responder's memory.
Response unfinished(Placed placed) {
  switch (placed) {
    case Placed::kPartly:
      return {Answer::kPartial};
    case Placed::kLocalFault:
      return {Answer::kLocal, VendorError::local_memory_gone};
    default:
      return {Answer::kGone};
  }
}

// Completes a SEND whose bytes wait beside the receive WQE: in `payload`, in a bounce buffer or, at
// `bounced_at`, in the bounce ring. nullopt: the CQ ignores overruns and has no room, so the bytes must be
// placed.
std::optional<Response> complete_waiting(RequesterContext& requester, const SendOperation& operation,
                                         const Request& request, const uint8_t* payload,
                                         const uint64_t* bounced_at = nullptr) {
  const PeerPath& path = requester.path;
  if (const VendorError error = invalidate_if_asked(path, operation, request); error != VendorError::none)
    return fail_invalidation(requester, operation, request, error);
  Arrival arrival = arrival_of(operation, request);
  arrival.bounced_at = bounced_at;
  if (complete_receive(requester, arrival, request.length != 0, payload)) return Response{Answer::kAck};
  if (!path.completions.ignores_overrun())
    return Response{Answer::kNak, VendorError::remote_operation_failed};
  return std::nullopt;
}

// SEND: the message goes where the next receive WQE says.
Response respond_to_send(RequesterContext& requester, const SendOperation& operation, Request& request,
                         const LocalBytes& local) {
  PeerPath& path = requester.path;
  Receive receive;
  bool invalidated = false;
  const bool tagged = matches_tags(path);
  if (tagged) [[unlikely]]
    if (const auto response = match_message(requester, request, local)) return *response;
  if (!next_receive(requester, &receive)) return {Answer::kRnr};
  if (request.length > receive.length)
    return fail_receive(requester, operation, request, VendorError::receive_too_small,
                        VendorError::remote_receive_too_small, {.length = receive.length});

  // The payload of the completion entry says what was matched.
  if (!tagged && (requester.may_be_eager || request.length == 0) && request.length <= kBounceSize &&
      prevalidated(path, {0, receive.epoch, receive.length})) {
    // Gathered before anything is claimed: the program's pages may have to be read in.
    const uint32_t header = path.target != nullptr ? uint32_t{sizeof(XrcSource)} : 0;
    const bool in_entry = request.length + header <= path.completions.inline_size();
    uint8_t payload[kCqeInlineSize];
    uint8_t* to = in_entry ? payload : receive.bounce;
    for (size_t i = 0; i < local.count; ++i) {
      copy_small(to, local.ranges[i].iov_base, local.ranges[i].iov_len);
      to += local.ranges[i].iov_len;
    }
    if (const auto response = complete_waiting(requester, operation, request, in_entry ? payload : nullptr))
      return *response;
    invalidated = true;
  }

  // The SGEs of the WQE are checked now: keys may have ended since it was posted. If an SGE is longer than
  // its region, only the part that the message fills must be inside. rxe does the same (rxe_mr.c,
  // copy_data()), and perftest relies on it (ctx_set_recv_wqes() rounds the SGEs of an SRQ up to the MTU).
  // hns checks the whole SGE.
  iovec remote[PeerAdapter::kMaxRanges];
  std::byte* mapped[PeerAdapter::kMaxRanges];
  const uint32_t epoch = mapping_epoch(requester);
  bool all_mapped = true;
  size_t remotes = 0;
  uint64_t room = 0;
  if (receive.header_there.iov_len != 0) [[unlikely]] {
    mapped[remotes] = receive.header.bytes;
    remote[remotes++] = receive.header_there;
    room = receive.header_there.iov_len;
  }
  for (uint32_t i = 0; i < receive.sge_count && room < request.length; ++i) {
    const WqeSge sge = receive.sges[i];
    if (sge.length == 0) continue;
    if (remotes + 1 >= PeerAdapter::kMaxRanges) break;
    const uint64_t used = std::min<uint64_t>(sge.length, request.length - room);
    const Translation place = translate(path.memory->view(), sge.lkey, false, path.receive_pd,
                                        MemoryUse::local_scatter, sge.address, used);
    if (place.check != KeyCheck::kOk)
      return fail_receive(requester, operation, request, local_key_error(place.check),
                          VendorError::remote_operation_failed,
                          {.lkey = sge.lkey, .address = sge.address, .length = sge.length});
    mapped[remotes] = find_mapped(requester, sge.lkey, place.address, used, true).bytes;
    all_mapped = all_mapped && mapped[remotes] != nullptr;
    remote[remotes++] = {reinterpret_cast<void*>(place.address), used};
    room += used;
  }
  if (room < request.length)
    return fail_receive(requester, operation, request, VendorError::receive_too_small,
                        VendorError::remote_receive_too_small, {.length = static_cast<uint32_t>(room)});
  uint64_t position;
  if (!all_mapped && !invalidated && !tagged && may_bounce(requester, request) &&
      prevalidated(path, {0, receive.epoch, receive.length}) &&
      bounce_message(path, local.ranges, local.count, request.length, &position)) {
    const uint64_t before = path.bounced;
    keep_bounced(path, position, request.length);
    if (const auto response = complete_waiting(requester, operation, request, nullptr, &position)) {
      prepare_bounce(path, request.length);
      return *response;
    }
    give_back_bounced(path, before);
    invalidated = true;
  }
  if (!eager_is_settled(requester, remote, remotes)) return {Answer::kPartial};
  const Placed placed =
      place_chunk(requester, request, local, remote, remotes, {all_mapped ? mapped : nullptr, epoch});
  if (placed == Placed::kRemoteFault)
    return fail_receive(requester, operation, request, VendorError::local_memory_gone,
                        VendorError::remote_operation_failed, only_sge_of(receive));
  if (placed != Placed::kWhole) return unfinished(placed);
  if (const VendorError error =
          invalidated ? VendorError::none : invalidate_if_asked(path, operation, request);
      error != VendorError::none)
    return fail_invalidation(requester, operation, request, error);
  if (!complete_receive(requester, arrival_of(operation, request), false, nullptr))
    return {Answer::kNak, VendorError::remote_operation_failed};
  return {Answer::kAck};
}

// WRITE and READ: `rkey` names the memory.
Response respond_to_rdma(RequesterContext& requester, const SendOperation& operation, Request& request,
                         const LocalBytes& local, MemoryUse use) {
  PeerPath& path = requester.path;
  Receive receive;
  if (operation.consumes_receive && !next_receive(requester, &receive)) return {Answer::kRnr};
  const auto refuse_request = [&](VendorError error) {
    if (!operation.consumes_receive) return refuse(requester, request, error);
    return fail_receive(requester, operation, request, VendorError::local_access, error);
  };
  MappedBytes mapped;
  uint32_t epoch = 0;
  iovec remote{};
  if (request.length != 0) {
    epoch = mapping_epoch(requester);
    const Translation place = translate(path.memory->view(), request.rkey, true, path.remote_pd, use,
                                        request.remote_address, request.length, path.qp->qpn);
    if (place.check != KeyCheck::kOk) return refuse_request(remote_key_error(place.check));
    remote = {reinterpret_cast<void*>(place.address), request.length};
    mapped =
        find_mapped(requester, request.rkey, place.address, request.length, use == MemoryUse::remote_write);
  }
  if (local.error != VendorError::none) return {Answer::kLocal, local.error};
  if (request.length != 0) {
    if (!eager_is_settled(requester, &remote, 1)) return {Answer::kPartial};
    const MappedRanges here{mapped.bytes != nullptr ? &mapped.bytes : nullptr, epoch};
    const Placed placed = use == MemoryUse::remote_read
                              ? fetch_chunk(requester, request, local, remote, here)
                              : place_chunk(requester, request, local, &remote, 1, here);
    if (placed == Placed::kRemoteFault) return refuse_request(VendorError::remote_memory_gone);
    if (placed != Placed::kWhole) return unfinished(placed);
  }
  if (operation.consumes_receive &&
      !complete_receive(requester, arrival_of(operation, request), false, nullptr))
    return {Answer::kNak, VendorError::remote_operation_failed};
  return {Answer::kAck};
}

Response respond_to_atomic(RequesterContext& requester, Request& request, const LocalBytes& local) {
  PeerPath& path = requester.path;
  const Translation place = translate(path.memory->view(), request.rkey, true, path.remote_pd,
                                      MemoryUse::remote_atomic, request.remote_address, 8, path.qp->qpn);
  if (place.check != KeyCheck::kOk) return refuse(requester, request, remote_key_error(place.check));
  const iovec remote{reinterpret_cast<void*>(place.address), 8};
  if (!eager_is_settled(requester, &remote, 1)) return {Answer::kPartial};
  uint64_t before = 0;
  const uint32_t epoch = mapping_epoch(requester);
  const MappedBytes mapped = find_mapped(requester, request.rkey, place.address, sizeof before, true);
  const MappedRanges here{mapped.bytes != nullptr ? &mapped.bytes : nullptr, epoch};
  switch (change_atomically(requester, request, place.address, here, &before)) {
    case Placed::kWhole:
      break;
    case Placed::kGone:
      return {Answer::kGone};
    case Placed::kBusy:
      return {Answer::kBusy};
    default:
      return refuse(requester, request, VendorError::remote_memory_gone);
  }
  if (local.error != VendorError::none) return {Answer::kLocal, local.error};
  const auto* from = reinterpret_cast<const std::byte*>(&before);
  for (size_t i = 0; i < local.count; ++i) {
    std::memcpy(local.ranges[i].iov_base, from, local.ranges[i].iov_len);
    from += local.ranges[i].iov_len;
  }
  return {Answer::kAck};
}

// ATOMIC WRITE: 8 aligned bytes in one store.
Response respond_to_atomic_write(RequesterContext& requester, const Request& request,
                                 const LocalBytes& local) {
  PeerPath& path = requester.path;
  const Translation place =
      translate(path.memory->view(), request.rkey, true, path.remote_pd, MemoryUse::remote_write,
                request.remote_address, sizeof(uint64_t), path.qp->qpn);
  if (place.check != KeyCheck::kOk) return refuse(requester, request, remote_key_error(place.check));
  const iovec remote{reinterpret_cast<void*>(place.address), sizeof(uint64_t)};
  if (!eager_is_settled(requester, &remote, 1)) return {Answer::kPartial};
  uint64_t value = 0;
  auto* to = reinterpret_cast<std::byte*>(&value);
  for (size_t i = 0; i < local.count; ++i) {
    std::memcpy(to, local.ranges[i].iov_base, local.ranges[i].iov_len);
    to += local.ranges[i].iov_len;
  }
  const iovec from{&value, sizeof value};
  const int error = path.memory->write(requester.process->directory(), &from, 1, &remote, 1);
  if (error == ESRCH) return {Answer::kGone};
  return error == 0 ? Response{Answer::kAck} : refuse(requester, request, VendorError::remote_memory_gone);
}

bool is_refused_access(const Response& response) {
  return response.answer == Answer::kNak &&
         find_vendor_error(static_cast<uint32_t>(response.error))->status == IBV_WC_REM_ACCESS_ERR;
}

}  // namespace

Response refuse(RequesterContext& requester, const Request& request, VendorError error) {
  PeerPath& path = requester.path;
  explain_refusal(requester, request, error);
  if (path.qp->type == IBV_QPT_UC) return {Answer::kNak, error};
  const int event = find_vendor_error(static_cast<uint32_t>(error))->responder_event;
  put_in_error(path, event == IBV_EVENT_QP_ACCESS_ERR ? kPendingAccessError
                     : event == kNoEvent              ? kPendingFatal
                                                      : kPendingRequestError);
  return {Answer::kNak, error};
}

Response respond(RequesterContext& requester, const SendOperation& operation, Request& request,
                 const LocalBytes& local) {
  PeerPath& path = requester.path;
  SharedQp& qp = *path.qp;
  const uint32_t before = request.done;
  Response response;
  VendorError error = VendorError::none;
  if (request.done == 0)
    error = check_request(operation, static_cast<ibv_qp_type>(qp.type), qp.access, qp.max_dest_rd_atomic,
                          request.remote_address);
  if (error != VendorError::none)
    response = refuse(requester, request, error);
  else if (operation.atomic && operation.sges == SgeUse::gather)
    response = respond_to_atomic_write(requester, request, local);
  else if (operation.atomic)
    response = respond_to_atomic(requester, request, local);
  else if (operation.awaits_response)
    response = respond_to_rdma(requester, operation, request, local, MemoryUse::remote_read);
  else if (operation.remote_address)
    response = respond_to_rdma(requester, operation, request, local, MemoryUse::remote_write);
  else
    response = respond_to_send(requester, operation, request, local);
  if (qp.type == IBV_QPT_UC && response.answer == Answer::kRnr) explain_lost_message(requester, request);
  if (qp.type == IBV_QPT_UC && (response.answer == Answer::kRnr || response.answer == Answer::kNak ||
                                response.answer == Answer::kSilence))
    qp.dropped.fetch_add(1, std::memory_order_relaxed);
  if (is_refused_access(response)) [[unlikely]]
    count_event(requester.process->directory(), qp, HwCounter::kRefusesAccess);
  if (response.answer == Answer::kAck)
    count_request(requester, passing_of(brings_response(operation)), request.length,
                  packets_of(request.length, requester.mtu));
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    tell_response(*seen, requester, request, response, before, local);
  return response;
}

}  // namespace verbena
