// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/small_send.h"

#include <cstring>

#include "engine/completion/send_completion.h"
#include "engine/local/small_request.h"
#include "engine/responder/responder.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/small_copy.h"

namespace verbena {
namespace {

constexpr unsigned kFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE | IBV_SEND_INLINE;

// Can the request itself take the fast path?
bool is_small_send(const Qp& qp, const ibv_send_wr& wr) {
  static_assert((IBV_WR_SEND | 1) == IBV_WR_SEND_WITH_IMM);
  if ((number_in(wr.opcode) | 1) != IBV_WR_SEND_WITH_IMM || wr.num_sge != 1 || wr.sg_list == nullptr ||
      (wr.send_flags & ~kFlags) != 0)
    return false;
  const uint32_t length = wr.sg_list[0].length;
  if (length - 1 >= qp.fast.small_size) return false;  // 0 is none
  return (wr.send_flags & IBV_SEND_INLINE) == 0 || length <= qp.cap.max_inline_data;
}

bool readable(Qp& qp, const ibv_send_wr& wr, uint64_t* address) {
  const ibv_sge& sge = wr.sg_list[0];
  *address = sge.addr;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) return true;
  return find_gathered(qp, sge, address);
}

// Touches the pages before anything is claimed: they may have to be read in.
void touch(const uint8_t* bytes, uint32_t length) {
  static_cast<void>(*static_cast<const volatile uint8_t*>(bytes));
  static_cast<void>(*static_cast<const volatile uint8_t*>(bytes + length - 1));
}

}  // namespace

bool send_small(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  if (!is_small_send(qp, wr) || qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size)
    return false;
  PeerPath& path = qp.requester.path;
  guard_peer(qp, guard);
  uint64_t address;
  if (!readable(qp, wr, &address) || !is_path_unchanged(qp)) return false;
  const uint32_t length = wr.sg_list[0].length;
  ReadyWord ready;
  if (!path.receives.peek(path.taken, &ready, &qp.fast.ready) || length > ready.length ||
      !prevalidated(path, ready))
    return false;
  path.receives.expect(path.taken);
  const auto* bytes = reinterpret_cast<const uint8_t*>(address);
  const bool in_entry = length <= path.completions.inline_size();
  if (in_entry)
    touch(bytes, length);
  else
    std::memcpy(path.receives.bounce(path.taken), bytes, length);
  const auto to = receive_cq(qp.requester);
  const Claim claim = claim_completion(to.ring, to.worker);
  if (claim.entry == nullptr) return false;  // the CQ is full: the slow path finds that again, and reports it

  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  const bool with_immediate = number_in(wr.opcode) == IBV_WR_SEND_WITH_IMM;
  write_cqe(*claim.entry, {.qp_index = path.index,
                           .qp_incarnation = path.incarnation,
                           .index = static_cast<uint32_t>(path.taken),
                           .byte_len = length,
                           .immediate = wr.imm_data,
                           .status = IBV_WC_SUCCESS,
                           .opcode = IBV_WC_RECV & ~IBV_WC_RECV,
                           .flags = static_cast<uint8_t>(kCqeReceive | (in_entry ? kCqeInline : 0) |
                                                         (with_immediate ? kCqeWithImmediate : 0) |
                                                         (solicited ? kCqeSolicited : 0))});
  if (in_entry) copy_small(claim.entry->payload, bytes, length);
  publish_cqe(to, claim, CqeKind::kEager);
  prepare_next(path, claim, length, in_entry);
  note_eager(path, claim.position);
  count_taken(path);
  static_assert(kBounceSize <= 256);  // one packet, whatever the path MTU
  count_request(qp.requester, Passing::kRequest, length, 1);
  advance(qp, Passing::kRequest, length, 1);
  const uint64_t number = pass_through_queue(qp);
  const bool signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  if (signaled) append_send_completion(qp, {wr.wr_id, number, wr.opcode, length});
  raise_both_events(qp, signaled,
                    [&] { raise_completion_event(*path.completion_queue, *path.memory, solicited); });
  return true;
}

}  // namespace verbena
