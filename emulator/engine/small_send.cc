// SPDX-License-Identifier: BSD-2-Clause
#include "engine/small_send.h"

#include "engine/program_enum.h"
#include "engine/requester.h"
#include "engine/responder.h"
#include "engine/small_copy.h"
#include "fabric/hazards.h"

namespace verbena {
namespace {

constexpr unsigned kFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE | IBV_SEND_INLINE;

// A request for this course, as far as it alone can tell.
bool is_small_send(const Qp& qp, const ibv_send_wr& wr) {
  const unsigned opcode = number_in(wr.opcode);
  if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM) return false;
  if (qp.type != IBV_QPT_RC || wr.num_sge != 1 || wr.sg_list == nullptr || (wr.send_flags & ~kFlags) != 0)
    return false;
  const uint32_t length = wr.sg_list[0].length;
  if (length == 0 || length > kCqeInlineSize) return false;
  return (wr.send_flags & IBV_SEND_INLINE) == 0 || length <= qp.cap.max_inline_data;
}

// May the QP read the bytes? On a visit: the region stays registered.
bool readable(const Qp& qp, const ibv_send_wr& wr, uint64_t* address) {
  const ibv_sge& sge = wr.sg_list[0];
  *address = sge.addr;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) return true;
  const Translation place = translate(qp.process->view(), sge.lkey, false, qp.pd->handle,
                                      MemoryUse::local_gather, sge.addr, sge.length);
  *address = place.address;
  return place.check == KeyCheck::kOk && !place.on_demand;
}

}  // namespace

bool send_small(Qp& qp, const ibv_send_wr& wr) {
  if (!is_small_send(qp, wr) || qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size)
    return false;
  PeerPath& path = qp.path;
  if (!path.adapter || path.gate == 0 || path.receives.ready == nullptr) return false;
  const uint32_t length = wr.sg_list[0].length;
  if (length > path.completions.inline_size()) return false;

  const Visit visit(qp.process->directory(), qp.process->home().slot(), path.adapter->slot());
  uint64_t address;
  if (!readable(qp, wr, &address) || !path.adapter->alive(qp.process->directory()) ||
      path.qp->gate.load(std::memory_order_acquire) != path.gate)
    return false;
  ReadyWord ready;
  if (!path.receives.peek(path.taken, &ready) || length > ready.length || !prevalidated(path, ready))
    return false;

  // Gathered before anything is claimed over there: the program's pages may take their time.
  uint8_t payload[kCqeInlineSize];
  copy_small(payload, reinterpret_cast<const void*>(address), length);
  const bool with_immediate = number_in(wr.opcode) == IBV_WR_SEND_WITH_IMM;
  if (!complete_receive(qp, path, {wr.send_flags, length, wr.imm_data, IBV_WC_RECV, with_immediate}, true,
                        payload))
    return false;  // its CQ is full: the general course meets that again, and tells
  count_request(qp, length);
  advance(qp, length);
  const uint64_t number = qp.sq_posted++;
  qp.sq_next = qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  if (qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0)
    complete_send(qp, read_request(qp, wr, number), VendorError::none);
  raise_event_due(path);
  return true;
}

}  // namespace verbena
