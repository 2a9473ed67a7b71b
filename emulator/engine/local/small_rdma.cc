// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/small_rdma.h"

#include "adapter/memory_table.h"
#include "engine/completion/send_completion.h"
#include "engine/local/small_request.h"
#include "engine/responder/placement.h"
#include "engine/responder/responder.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/psn.h"
#include "engine/rules/send_rules.h"

namespace verbena {
namespace {

constexpr unsigned kWriteFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE | IBV_SEND_INLINE;
constexpr unsigned kReadFlags = kWriteFlags & ~IBV_SEND_INLINE;

bool is_small_rdma(const Qp& qp, const ibv_send_wr& wr) {
  const unsigned opcode = number_in(wr.opcode);
  if (opcode == IBV_WR_RDMA_READ) {
    if ((wr.send_flags & ~kReadFlags) != 0 || qp.attr.max_rd_atomic == 0) return false;
  } else if (opcode != IBV_WR_RDMA_WRITE || (wr.send_flags & ~kWriteFlags) != 0) {
    return false;
  }
  if (wr.num_sge != 1 || wr.sg_list == nullptr) return false;
  const uint32_t length = wr.sg_list[0].length;
  if (length - 1 >= kSmallRdma) return false;  // 0 is none
  return (wr.send_flags & IBV_SEND_INLINE) == 0 || length <= qp.cap.max_inline_data;
}

// Finds the own bytes and checks the lkey. Under a hazard guard: the region stays registered.
bool find_own_bytes(Qp& qp, const ibv_send_wr& wr, bool reads, uint64_t* address) {
  const ibv_sge& sge = wr.sg_list[0];
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) return *address = sge.addr, true;
  return reads ? find_read_into(qp, sge, address) : find_gathered(qp, sge, address);
}

// Finds the peer's bytes and checks the rkey. Under the hazard guard.
bool find_remote_bytes(Qp& qp, const ibv_send_wr& wr, bool reads, uint64_t* address) {
  PeerPath& path = qp.requester.path;
  const SegmentView& view = path.memory->view();
  const auto& [at, rkey] = wr.wr.rdma;
  const uint32_t length = wr.sg_list[0].length;
  KnownRegion& known = reads ? qp.fast.read : qp.fast.written;
  if (known.covers(view.header().mr_epoch.load(std::memory_order_acquire), rkey, at, length, address))
    return true;
  const MemoryUse use = reads ? MemoryUse::remote_read : MemoryUse::remote_write;
  const Translation place = translate(view, rkey, true, path.remote_pd, use, at, length, path.qp->qpn);
  if (place.check != KeyCheck::kOk) return false;
  known.remember(view, rkey, path.remote_pd, use);
  return *address = place.address, true;
}

bool move(Qp& qp, uint64_t here, uint64_t there, uint32_t length, bool reads) {
  PeerAdapter& memory = *qp.requester.path.memory;
  if (length <= PeerAdapter::kWord)
    return reads ? memory.read_word(here, there, length) : memory.write_word(here, there, length);
  if (!reads) return place_at_once(qp.requester, here, there, length) == 0;
  const iovec own{reinterpret_cast<void*>(here), length}, remote{reinterpret_cast<void*>(there), length};
  return memory.read(qp.process->directory(), &own, 1, &remote, 1) == 0;
}

}  // namespace

bool carry_out_small_rdma(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  PeerPath& path = qp.requester.path;
  if (!qp.fast.rdma || !is_small_rdma(qp, wr) ||
      qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size)
    return false;
  guard_peer(qp, guard);
  const ibv_sge& sge = wr.sg_list[0];
  const bool reads = number_in(wr.opcode) == IBV_WR_RDMA_READ;
  uint64_t here;
  if (!find_own_bytes(qp, wr, reads, &here) || !is_path_unchanged(qp) || path.has_eager) return false;
  const SendOperation& operation = *find_send_operation(wr.opcode);
  const SharedQp& responder = *path.qp;
  if (check_request(operation, IBV_QPT_RC, responder.access, responder.max_dest_rd_atomic,
                    wr.wr.rdma.remote_addr) != VendorError::none)
    return false;
  uint64_t there;
  if (!find_remote_bytes(qp, wr, reads, &there) || !move(qp, here, there, sge.length, reads)) return false;

  const uint64_t packets = packets_of(sge.length, qp.requester.mtu);
  count_request(qp.requester, sge.length, packets);
  advance(qp, sge.length, packets);
  const uint64_t number = pass_through_queue(qp);
  if (qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0) {
    append_send_completion(qp, {wr.wr_id, number, wr.opcode, sge.length});
    raise_send_event(qp, false);
  }
  return true;
}

}  // namespace verbena
