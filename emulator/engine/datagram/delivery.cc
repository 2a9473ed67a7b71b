// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/delivery.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/completion/completion_writer.h"
#include "engine/datagram/datagram_order.h"
#include "engine/responder/mapped_bytes.h"
#include "engine/responder/refusal.h"
#include "engine/responder/responder.h"
#include "engine/responder/violations.h"
#include "engine/rules/key_errors.h"
#include "fabric/guarded_copy.h"
#include "fabric/hazards.h"
#include "observe/observer.h"

namespace verbena {
namespace {

// Where the bytes of a receive request are in this process, if it has mapped their region. `lkey` has been
// found valid.
std::byte* find_mapped_receive(Process& process, PeerAdapter& adapter, uint32_t lkey, uint64_t address,
                               uint32_t size) {
  const SharedMr* const mr = adapter.view().mr(MemoryKey::unpack(lkey).index);
  if (mr == nullptr || mr->mappable.load(std::memory_order_acquire) == 0) return nullptr;
  return find_mapped_in(process, adapter, *mr, address, size, true).bytes;
}

// Copies the message to the ranges. False: one of them is not mapped, or its page is gone.
bool copy_mapped(const DatagramMessage& message, const iovec* ranges, std::byte* const* mapped,
                 size_t count) {
  if (std::any_of(mapped, mapped + count, [](const std::byte* bytes) { return bytes == nullptr; }))
    return false;
  const uint8_t* from = message.bytes;
  for (size_t i = 0; i < count; from += ranges[i++].iov_len)
    if (!copy_guarded(mapped[i], from, ranges[i].iov_len)) return false;
  return true;
}

// Places the message where the receive WQE says. The keys of the WQE are checked now. `position`: of its
// completion. A message that came before it must not be scattered over it when that one is polled.
VendorError place(const DatagramSender& from, Destination& to, const DatagramMessage& message,
                  const ReceiveWqe& wqe, uint64_t position) {
  const SegmentView& view = to.adapter->view();
  iovec remote[PeerAdapter::kMaxRanges];
  std::byte* mapped[PeerAdapter::kMaxRanges];  // here; nullptr: not mapped
  const uint32_t epoch = view.header().mr_epoch.load(std::memory_order_acquire);
  size_t remotes = 0;
  uint32_t room = 0;
  const uint32_t count = std::min(wqe.sge_count, to.receives.max_sge);
  for (uint32_t i = 0; i < count && room < message.length && remotes < PeerAdapter::kMaxRanges; ++i) {
    const WqeSge sge = wqe.sge[i];
    if (sge.length == 0) continue;
    const uint32_t used = std::min(sge.length, message.length - room);
    const Translation found =
        translate(view, sge.lkey, false, to.receives.shared->pd, MemoryUse::local_scatter, sge.address, used);
    if (found.check != KeyCheck::kOk) return local_key_error(found.check);
    mapped[remotes] = find_mapped_receive(*from.process, *to.adapter, sge.lkey, found.address, used);
    remote[remotes++] = {reinterpret_cast<void*>(found.address), used};
    room += used;
  }
  if (room < message.length) return VendorError::receive_too_small;
  const NodeDirectory& directory = from.process->directory();
  const iovec local{const_cast<uint8_t*>(message.bytes), message.length};
  settle(to, directory, position, remote, remotes, Until::kEagerAreScattered);
  do {
    if (copy_mapped(message, remote, mapped, remotes) && to.adapter->alive(directory) &&
        view.header().mr_epoch.load(std::memory_order_acquire) == epoch)
      continue;
    if (to.adapter->write(directory, &local, 1, remote, remotes) != 0) return VendorError::local_memory_gone;
    // A message that was being appended then may have been scattered since, perhaps under this one.
  } while (settle(to, directory, position, remote, remotes, Until::kUnfinishedAreScattered));
  return VendorError::none;
}

CqProducer<CompletionRing> receive_cq(const DatagramSender& from, Destination& to) {
  return {to.completions, *to.completion_queue, *to.adapter, from.process->membership().worker()};
}

// The CQ ignores overruns: the completion is lost, and the message must not be.
VendorError place_without_completion(const DatagramSender& from, Destination& to,
                                     const DatagramMessage& message, uint32_t slot) {
  const uint64_t end = to.completions.places->tail.load(std::memory_order_acquire);
  const VendorError error = place(from, to, message, to.receives.wqe(slot), end);
  to.receives.abandon(slot);
  return error;
}

// Publishes the receive completion for `slot`. `eager`: the bytes are in it, or in the slot's bounce buffer.
void complete(const DatagramSender& from, Destination& to, const DatagramMessage& message, uint32_t slot,
              const Claim& claim, VendorError error, bool eager) {
  const auto status = find_vendor_error(static_cast<uint32_t>(error))->status;
  Completion completion{.qp_index = to.index,
                        .qp_incarnation = to.incarnation,
                        .index = slot,
                        .byte_len = message.length,
                        .immediate = message.immediate,
                        .status = static_cast<uint8_t>(status),
                        .opcode = IBV_WC_RECV & ~IBV_WC_RECV,
                        .flags = message.flags,
                        .vendor_err = static_cast<uint8_t>(error)};
  std::memcpy(claim.entry->payload, &message.source, sizeof message.source);
  if (eager && message.length <= to.room_in_entry()) {
    completion.flags |= kCqeInline;
    std::memcpy(claim.entry->payload + sizeof message.source, message.bytes, message.length);
  }
  write_cqe(*claim.entry, completion);
  publish_cqe(receive_cq(from, to), claim, eager ? CqeKind::kEager : CqeKind::kPublished);
  to.event_due = message.solicited || status != IBV_WC_SUCCESS ? 2 : 1;
}

// The message is dropped for what `kind` says, the `count`th one of this kind.
[[gnu::cold]] void explain_drop(const DatagramSender& from, Destination& to, const DatagramMessage& message,
                                RefusalKind kind, uint32_t expected, uint32_t got, uint32_t count) {
  if (!is_explained(*to.adapter, kind)) return;
  RequestRefusal refusal{};
  refusal.kind = kind;
  refusal.opcode = opcode_of(message);
  refusal.qpn = to.qp->qpn;
  refusal.source_qpn = message.source.qpn;
  refusal.length = message.length - message.header_bytes;
  refusal.expected = expected;
  refusal.got = got;
  refusal.count = count;
  name_source(*from.process, from.origin, &refusal);
  explain(*from.process, *to.adapter, refusal);
}

// There is no receive request, or the oldest one is too small.
[[gnu::cold]] void explain_drop(const DatagramSender& from, Destination& to, const DatagramMessage& message,
                                uint32_t count) {
  uint32_t space = 0;
  // One with space enough has been posted since.
  const bool is_too_small = to.receives.peek(&space) && space < message.length;
  explain_drop(from, to, message, is_too_small ? RefusalKind::kNoSpace : RefusalKind::kNoReceive, space,
               message.length, count);
}

Delivery take(const DatagramSender& from, Destination& to, const DatagramMessage& message) {
  SharedQp& there = *to.qp;
  const QpPath path = QpPath::unpack(there.path.load(std::memory_order_relaxed));
  // 0: a frame of another process, which does not bring it, or of a raw packet queue pair, which has none.
  if (message.pkey != 0 && !pkeys_match(message.pkey, path.pkey)) [[unlikely]] {
    count_violation(from.process->directory().header().pkey_violations[port_place(there.device, path.port)]);
    return Delivery::kDropped;
  }
  if (there.qkey.load(std::memory_order_relaxed) != message.qkey) {
    const uint32_t before = there.qkey_violations.fetch_add(1, std::memory_order_relaxed);
    explain_drop(from, to, message, RefusalKind::kOtherQkey, there.qkey.load(std::memory_order_relaxed),
                 message.qkey, before + 1);
    count_violation(from.process->directory().header().qkey_violations[port_place(there.device, path.port)]);
    return Delivery::kDropped;
  }
  uint32_t slot = 0;
  bool limit_reached = false;
  ReadyWord ready;
  if (!to.receives.take(from.process->membership().worker(), &slot, &limit_reached, message.length, &ready)) {
    if (message.may_wait) return Delivery::kNoReceive;
    const uint32_t before = there.dropped.fetch_add(1, std::memory_order_relaxed);
    explain_drop(from, to, message, before + 1);
    return Delivery::kDropped;
  }
  if (limit_reached) to.adapter->report(*to.receives.shared);
  there.rq_taken.fetch_add(1, std::memory_order_relaxed);
  const uint32_t epoch = to.adapter->view().header().mr_epoch.load(std::memory_order_acquire) & 0xffffff;
  const bool is_eager = from.may_be_eager && message.length <= kBounceSize && ready.epoch == epoch &&
                        epoch != ReadyWord::kNeverValid;
  if (is_eager && message.length > to.room_in_entry())
    std::memcpy(to.receives.bounce(slot), message.bytes, message.length);
  // The completion is claimed first: messages that come after it are scattered after it.
  const auto [claim, room] = claim_cqe(receive_cq(from, to));
  VendorError error = VendorError::none;
  if (room == Room::kIgnored)
    error = place_without_completion(from, to, message, slot);
  else if (room == Room::kClaimed && !is_eager)
    error = place(from, to, message, to.receives.wqe(slot), claim.position);
  // Before its completion can be polled: a thread that polls it finds the QP in ERR.
  if (error != VendorError::none) {
    note_receive_error(from.process->directory(), there,
                       find_vendor_error(static_cast<uint32_t>(error))->status, error);
    there.pending_flags.fetch_or(kPendingFatal, std::memory_order_acq_rel);
  }
  if (claim.entry != nullptr) complete(from, to, message, slot, claim, error, is_eager);
  if (error != VendorError::none) {
    to.adapter->report(there);
    return Delivery::kDropped;
  }
  (message.to_group ? there.packets_in.group_datagrams : there.requests_in)
      .fetch_add(1, std::memory_order_relaxed);
  there.bytes_in.fetch_add(message.length - message.header_bytes, std::memory_order_relaxed);
  return Delivery::kTaken;
}

Answer verdict_of(Delivery delivery) {
  switch (delivery) {
    case Delivery::kTaken:
      return Answer::kAck;
    case Delivery::kNoReceive:
      return Answer::kRnr;
    case Delivery::kDropped:
      return Answer::kNak;
  }
  return Answer::kNak;
}

}  // namespace

Delivery deliver(const DatagramSender& from, Destination& to, const DatagramMessage& message) {
  const Delivery delivery = take(from, to, message);
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_response({.source_qpn = message.source.qpn,
                       .target_qpn = to.qp->qpn,
                       .psn = 0,
                       .length = message.length - message.header_bytes,
                       .opcode = opcode_of(message),
                       .verdict = static_cast<uint8_t>(verdict_of(delivery)),
                       .vendor_err = 0,
                       .reply = delivery == Delivery::kTaken ? Reply::kAcknowledged : Reply::kSilence});
  return delivery;
}

void raise_events(DatagramSender& from) {
  const NodeDirectory& directory = from.process->directory();
  for (Destination* to : from.events_due) {
    const uint8_t due = std::exchange(to->event_due, uint8_t{0});
    if (to->completion_queue->channel == 0) continue;
    const HazardGuard guard(from.process->hazards(), to->adapter->slot());
    // The CQ may have been destroyed since. A new one in its place gets a superfluous event, which does no
    // harm.
    if (to->adapter->alive(directory) && to->completion_queue->alive.load(std::memory_order_acquire) != 0)
      raise_completion_event(*to->completion_queue, *to->adapter, due == 2);
  }
}

}  // namespace verbena
