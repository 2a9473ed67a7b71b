// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/long_send.h"

#include "adapter/memory_table.h"
#include "engine/completion/send_completion.h"
#include "engine/local/small_rdma.h"
#include "engine/local/small_request.h"
#include "engine/responder/bounced_message.h"
#include "engine/responder/mapped_bytes.h"
#include "engine/responder/placement.h"
#include "engine/responder/responder.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/psn.h"
#include "fabric/guarded_copy.h"

namespace verbena {
namespace {

constexpr unsigned kLongSendFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE;

// Can the request itself take this path?
bool is_long_send(const Qp& qp, const ibv_send_wr& wr) {
  static_assert((IBV_WR_SEND | 1) == IBV_WR_SEND_WITH_IMM);
  if (!qp.fast.long_sends || (number_in(wr.opcode) | 1) != IBV_WR_SEND_WITH_IMM || wr.num_sge != 1 ||
      wr.sg_list == nullptr || (wr.send_flags & ~kLongSendFlags) != 0)
    return false;
  const uint32_t length = wr.sg_list[0].length;
  return length > kBounceSize && length <= kSmallRdma;
}

// The receive WQE that the message goes to.
struct LongReceive {
  const ReceiveWqe* wqe = nullptr;
  uint32_t index = 0;  // as Completion::index
  ReadyWord ready;
  bool is_shared = false;  // of an SRQ, and taken from it
};

bool find_long_receive(Qp& qp, LongReceive* out) {
  PeerPath& path = qp.requester.path;
  ReadyWord ready;
  if (qp.fast.is_shared) {
    uint32_t slot;
    if (!take_shared_wqe(qp, &slot, &ready)) return false;
    *out = {&path.shared_receives.wqe(slot), slot, ready, true};
    return true;
  }
  if (!path.receives.peek(path.taken, &ready, &path.known_ready)) return false;
  *out = {&path.receives.wqe(path.taken), static_cast<uint32_t>(path.taken), ready, false};
  path.receives.expect(path.taken);
  return true;
}

// The buffer of the receive request, here, if `length` bytes fit into its only SGE and this process has
// mapped them. nullptr: not so. Under the hazard guard.
std::byte* find_buffer(Qp& qp, const ReceiveWqe& wqe, uint32_t length, uint32_t epoch) {
  PeerPath& path = qp.requester.path;
  // In a sound queue there is room for one SGE at least.
  if ((qp.fast.is_shared ? path.shared_receives.max_sge : path.receives.max_sge) == 0) return nullptr;
  // The WQE itself is then left to its owner.
  if (path.memory->view().header().has_mappable.load(std::memory_order_relaxed) == 0) return nullptr;
  const WqeSge sge = wqe.sge[0];
  if (wqe.sge_count != 1 || sge.length < length) return nullptr;
  KnownRemote& known = qp.fast.received;
  uint64_t address;
  // Another thread may use the queue pair next, and block SIGBUS.
  if (known.region.covers(epoch, sge.lkey, sge.address, length, &address))
    return known.is_mapped && may_copy_guarded() ? reinterpret_cast<std::byte*>(address + known.to_mapping)
                                                 : nullptr;
  const SegmentView& view = path.memory->view();
  const Translation place =
      translate(view, sge.lkey, false, path.receive_pd, MemoryUse::local_scatter, sge.address, length);
  if (place.check != KeyCheck::kOk) return nullptr;
  // Before the mapping is looked up: the epoch that the cache has is then the older one.
  known.region.remember(view, sge.lkey, path.receive_pd, MemoryUse::local_scatter);
  const MappedBytes found = find_mapped(qp.requester, sge.lkey, place.address, length, true);
  remember_mapped(known, found, place.address);
  return found.bytes;
}

// Where the message is when its completion is published.
enum class Whereabouts : uint8_t { kNowhere, kInBuffer, kInRing };

// Copies the message to the buffer of the receive request if that is mapped here, otherwise to the bounce
// ring. kNowhere: the slow path does it again, or fails. *position: in the ring.
Whereabouts copy_long(Qp& qp, const LongReceive& receive, uint64_t here, uint32_t length,
                      uint64_t* position) {
  PeerPath& path = qp.requester.path;
  if (length > receive.ready.length) return Whereabouts::kNowhere;
  auto* const from = reinterpret_cast<void*>(here);
  const uint32_t epoch = mapping_epoch(qp.requester);
  if (std::byte* const there = find_buffer(qp, *receive.wqe, length, epoch); there != nullptr) {
    const iovec buffer{there - qp.fast.received.to_mapping, length};
    if ((path.has_eager && !eager_is_settled(qp.requester, &buffer, 1)) || !copy_guarded(there, from, length))
      return Whereabouts::kNowhere;
    prepare_completion(path);
    return is_current(qp.requester, epoch) ? Whereabouts::kInBuffer : Whereabouts::kNowhere;
  }
  const iovec bytes{from, length};
  if (length > qp.process->longest_bounced.load(std::memory_order_relaxed) || !qp.fast.may_bounce ||
      !prevalidated(path, receive.ready) || !bounce_message(path, &bytes, 1, length, position))
    return Whereabouts::kNowhere;
  prepare_completion(path);
  return Whereabouts::kInRing;
}

}  // namespace

bool send_long(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  if (!is_long_send(qp, wr) || qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size)
    return false;
  PeerPath& path = qp.requester.path;
  guard_peer(qp, guard);
  const uint32_t length = wr.sg_list[0].length;
  uint64_t here;
  LongReceive receive;
  if (!find_gathered(qp, wr.sg_list[0], &here) || !is_path_unchanged(qp) || !find_long_receive(qp, &receive))
    return false;
  uint64_t position = 0;
  const Whereabouts bytes = copy_long(qp, receive, here, length, &position);
  const auto to = receive_cq(qp.requester);
  const Claim claim = bytes != Whereabouts::kNowhere ? claim_completion(to.ring, to.worker) : Claim{};
  if (claim.entry == nullptr) {
    // Not copied; or the CQ is full: the slow path finds that again, and reports it.
    if (receive.is_shared) keep_taken_wqe(path, receive.index);
    return false;
  }
  const bool in_ring = bytes == Whereabouts::kInRing;
  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  const bool with_immediate = number_in(wr.opcode) == IBV_WR_SEND_WITH_IMM;
  write_cqe(*claim.entry, {.qp_index = path.index,
                           .qp_incarnation = path.incarnation,
                           .index = receive.index,
                           .byte_len = length,
                           .immediate = wr.imm_data,
                           .status = IBV_WC_SUCCESS,
                           .opcode = IBV_WC_RECV & ~IBV_WC_RECV,
                           .flags = static_cast<uint8_t>(
                               kCqeReceive | (receive.is_shared ? kCqeFromShared : 0) |
                               (with_immediate ? kCqeWithImmediate : 0) | (solicited ? kCqeSolicited : 0))});
  if (in_ring) {
    std::memcpy(claim.entry->payload, &position, sizeof position);
    keep_bounced(path, position, length);
  }
  publish_cqe(to, claim, in_ring ? CqeKind::kEager : CqeKind::kPublished);
  prepare_next(path, claim, length, false);
  if (in_ring) {
    note_eager(path, claim.position);
    prepare_bounce(path, length);
  }
  if (receive.is_shared) path.shared_receives.expect_next();
  count_taken(path);
  const uint64_t packets = packets_of(length, qp.requester.mtu);
  count_request(qp.requester, Passing::kRequest, length, packets);
  advance(qp, Passing::kRequest, length, packets);
  const uint64_t number = pass_through_queue(qp);
  const bool signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  if (signaled) append_send_completion(qp, {wr.wr_id, number, wr.opcode, length});
  raise_both_events(qp, signaled,
                    [&] { raise_completion_event(*path.completion_queue, *path.memory, solicited); });
  return true;
}

}  // namespace verbena
