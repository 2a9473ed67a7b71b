// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/small_send.h"

#include "engine/completion/send_completion.h"
#include "engine/local/small_request.h"
#include "engine/responder/responder.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/small_copy.h"

namespace verbena {
namespace {

constexpr unsigned kFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE | IBV_SEND_INLINE;

// The bytes of a message. UCX sends its header, the program's and the program's bytes as a list inline
// (uct_rc_verbs_ep_am_short_iov()).
struct SmallMessage {
  const uint8_t* first;  // the bytes of sges[0]
  const ibv_sge* sges;
  int sge_count;  // 1, or up to kMostPieces inline
  uint32_t length;
};
constexpr int kMostPieces = 4;

// Can the request itself take the fast path?
bool is_small_send(const Qp& qp, const ibv_send_wr& wr) {
  static_assert((IBV_WR_SEND | 1) == IBV_WR_SEND_WITH_IMM);
  if ((number_in(wr.opcode) | 1) != IBV_WR_SEND_WITH_IMM || wr.sg_list == nullptr ||
      (wr.send_flags & ~kFlags) != 0)
    return false;
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  uint64_t length = wr.sg_list[0].length;
  if (wr.num_sge != 1) {
    if (wr.num_sge < 1 || wr.num_sge > kMostPieces || !is_inline ||
        static_cast<uint32_t>(wr.num_sge) > qp.cap.max_send_sge)
      return false;
    for (int i = 1; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  }
  if (length - 1 >= qp.fast.small_size) return false;  // 0 is none
  return !is_inline || length <= qp.cap.max_inline_data;
}

bool find_bytes(Qp& qp, const ibv_send_wr& wr, SmallMessage* out) {
  const ibv_sge* const sges = wr.sg_list;
  uint64_t address = sges[0].addr;
  if ((wr.send_flags & IBV_SEND_INLINE) == 0 && !find_gathered(qp, sges[0], &address)) return false;
  uint32_t length = sges[0].length;
  for (int i = 1; i < wr.num_sge; ++i) length += sges[i].length;
  *out = {reinterpret_cast<const uint8_t*>(address), sges, wr.num_sge, length};
  return true;
}

// Calls piece(bytes, length) for each part of the message that is not empty.
template <typename Piece>
void for_each_piece(const SmallMessage& message, Piece piece) {
  if (message.sges[0].length != 0) piece(message.first, message.sges[0].length);
  for (int i = 1; i < message.sge_count; ++i)
    if (message.sges[i].length != 0)
      piece(reinterpret_cast<const uint8_t*>(message.sges[i].addr), message.sges[i].length);
}

// Touches the pages before anything is claimed: they may have to be read in.
void touch(const SmallMessage& message) {
  for_each_piece(message, [](const uint8_t* bytes, uint32_t length) {
    static_cast<void>(*static_cast<const volatile uint8_t*>(bytes));
    static_cast<void>(*static_cast<const volatile uint8_t*>(bytes + length - 1));
  });
}

void copy_message(uint8_t* to, const SmallMessage& message) {
  for_each_piece(message, [&](const uint8_t* bytes, uint32_t length) {
    copy_small(to, bytes, length);
    to += length;
  });
}

// The receive WQE that the message goes to.
struct SmallReceive {
  uint32_t index;  // as Completion::index
  bool is_shared;  // of a shared receive queue, and taken from it
  std::byte* bounce;
};

bool find_receive(Qp& qp, uint32_t length, SmallReceive* out) {
  PeerPath& path = qp.requester.path;
  ReadyWord ready;
  if (!path.receives.peek(path.taken, &ready, &path.known_ready) || length > ready.length ||
      !prevalidated(path, ready))
    return false;
  *out = {static_cast<uint32_t>(path.taken), false, path.receives.bounce(path.taken)};
  path.receives.expect(path.taken);
  return true;
}

bool take_shared_receive(Qp& qp, uint32_t length, SmallReceive* out) {
  PeerPath& path = qp.requester.path;
  uint32_t slot;
  ReadyWord ready;
  if (!take_shared_wqe(qp, &slot, &ready)) return false;
  *out = {slot, true, path.shared_receives.bounce(slot)};
  if (length <= ready.length && prevalidated(path, ready)) [[likely]]
    return true;
  keep_taken_wqe(path, slot);
  return false;
}

}  // namespace

bool send_small(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  if (!is_small_send(qp, wr) || qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size)
    return false;
  PeerPath& path = qp.requester.path;
  guard_peer(qp, guard);
  SmallMessage message;
  if (!find_bytes(qp, wr, &message) || !is_path_unchanged(qp)) return false;
  const uint32_t length = message.length;
  const bool in_entry = length <= path.completions.inline_size();
  SmallReceive receive;
  if (qp.fast.is_shared) {
    touch(message);
    if (!take_shared_receive(qp, length, &receive)) return false;
  } else {
    if (!find_receive(qp, length, &receive)) return false;
    if (in_entry) touch(message);
  }
  if (!in_entry) copy_message(reinterpret_cast<uint8_t*>(receive.bounce), message);
  const auto to = receive_cq(qp.requester);
  const Claim claim = claim_completion(to.ring, to.worker);
  if (claim.entry == nullptr) [[unlikely]] {
    // The CQ is full: the slow path finds that again, and reports it.
    if (receive.is_shared) keep_taken_wqe(path, receive.index);
    return false;
  }

  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  const bool with_immediate = number_in(wr.opcode) == IBV_WR_SEND_WITH_IMM;
  write_cqe(*claim.entry,
            {.qp_index = path.index,
             .qp_incarnation = path.incarnation,
             .index = receive.index,
             .byte_len = length,
             .immediate = wr.imm_data,
             .status = IBV_WC_SUCCESS,
             .opcode = IBV_WC_RECV & ~IBV_WC_RECV,
             .flags = static_cast<uint8_t>(
                 kCqeReceive | (in_entry ? kCqeInline : 0) | (receive.is_shared ? kCqeFromShared : 0) |
                 (with_immediate ? kCqeWithImmediate : 0) | (solicited ? kCqeSolicited : 0))});
  if (in_entry) copy_message(claim.entry->payload, message);
  publish_cqe(to, claim, CqeKind::kEager);
  prepare_next(path, claim, length, in_entry);
  if (receive.is_shared) path.shared_receives.expect_next();
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
