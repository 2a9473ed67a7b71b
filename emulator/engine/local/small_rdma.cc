// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/small_rdma.h"

#include <cstring>

#include "adapter/memory_table.h"
#include "engine/completion/send_completion.h"
#include "engine/local/small_request.h"
#include "engine/objects/request.h"
#include "engine/responder/mapped_bytes.h"
#include "engine/responder/placement.h"
#include "engine/responder/responder.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/psn.h"
#include "engine/rules/send_rules.h"
#include "fabric/guarded_copy.h"

namespace verbena {
namespace {

constexpr unsigned kWriteFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE | IBV_SEND_INLINE;
constexpr unsigned kReadFlags = kWriteFlags & ~IBV_SEND_INLINE;

// What the request does, if it is one of those. Atomics: of memory that this process has mapped.
struct SmallRdma {
  MemoryUse use;
  uint64_t at;  // the peer's bytes
  uint32_t rkey;
};

bool is_small_rdma(const Qp& qp, const ibv_send_wr& wr, SmallRdma* out) {
  if (wr.num_sge != 1 || wr.sg_list == nullptr) return false;
  const uint32_t length = wr.sg_list[0].length;
  if (length - 1 >= kSmallRdma) return false;  // 0 is none
  switch (number_in(wr.opcode)) {
    case IBV_WR_RDMA_WRITE:
      *out = {MemoryUse::remote_write, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey};
      return (wr.send_flags & ~kWriteFlags) == 0 &&
             ((wr.send_flags & IBV_SEND_INLINE) == 0 || length <= qp.cap.max_inline_data);
    case IBV_WR_RDMA_READ:
      *out = {MemoryUse::remote_read, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey};
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      *out = {MemoryUse::remote_atomic, wr.wr.atomic.remote_addr, wr.wr.atomic.rkey};
      if (length != sizeof(uint64_t)) return false;
      break;
    default:
      return false;
  }
  return (wr.send_flags & ~kReadFlags) == 0 && qp.attr.max_rd_atomic != 0;
}

// Finds the own bytes and checks the lkey. Under a hazard guard: the region stays registered.
bool find_own_bytes(Qp& qp, const ibv_send_wr& wr, MemoryUse use, uint64_t* address) {
  const ibv_sge& sge = wr.sg_list[0];
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) return *address = sge.addr, true;
  return use == MemoryUse::remote_write ? find_gathered(qp, sge, address) : find_read_into(qp, sge, address);
}

// The peer's bytes: their address there, and here if this process has mapped them.
struct RemoteBytes {
  uint64_t address;
  std::byte* mapped;
  uint32_t epoch;  // of the region, as in MappedRanges
};

// Looks the region up, and remembers it unless its mapping is under way.
bool find_remote_slowly(Qp& qp, const SmallRdma& what, uint32_t length, KnownRemote& known,
                        RemoteBytes* out) {
  PeerPath& path = qp.requester.path;
  const SegmentView& view = path.memory->view();
  const uint32_t epoch = mapping_epoch(qp.requester);
  const Translation place =
      translate(view, what.rkey, true, path.remote_pd, what.use, what.at, length, path.qp->qpn);
  if (place.check != KeyCheck::kOk) return false;
  // Before the mapping is looked up: the epoch that the cache has is then the older one.
  known.region.remember(view, what.rkey, path.remote_pd, what.use);
  const MappedBytes found =
      find_mapped(qp.requester, what.rkey, place.address, length, what.use != MemoryUse::remote_read);
  remember_mapped(known, found, place.address);
  *out = {place.address, found.bytes, epoch};
  return true;
}

KnownRemote& known_remote(FastPath& fast, MemoryUse use) {
  return use == MemoryUse::remote_write  ? fast.written
         : use == MemoryUse::remote_read ? fast.read
                                         : fast.changed;
}

// Finds the peer's bytes and checks the rkey. Under the hazard guard.
bool find_remote_bytes(Qp& qp, const SmallRdma& what, uint32_t length, RemoteBytes* out) {
  KnownRemote& known = known_remote(qp.fast, what.use);
  out->epoch = mapping_epoch(qp.requester);
  if (!known.region.covers(out->epoch, what.rkey, what.at, length, &out->address))
    return find_remote_slowly(qp, what, length, known, out);
  // Another thread may use the queue pair next, and block SIGBUS.
  out->mapped = known.is_mapped && may_copy_guarded()
                    ? reinterpret_cast<std::byte*>(out->address + known.to_mapping)
                    : nullptr;
  return true;
}

bool move(Qp& qp, uint64_t here, const RemoteBytes& bytes, uint32_t length, bool reads) {
  auto* const own_bytes = reinterpret_cast<std::byte*>(here);
  if (bytes.mapped != nullptr &&
      (reads ? copy_guarded(own_bytes, bytes.mapped, length)
             : copy_guarded(bytes.mapped, own_bytes, length)) &&
      is_current(qp.requester, bytes.epoch))
    return true;
  // Not mapped (any more); or a page is gone, and the kernel says which.
  const uint64_t there = bytes.address;
  PeerAdapter& memory = *qp.requester.path.memory;
  if (length <= PeerAdapter::kWord)
    return reads ? memory.read_word(here, there, length) : memory.write_word(here, there, length);
  if (!reads) return place_at_once(qp.requester, here, there, length) == 0;
  const iovec own{reinterpret_cast<void*>(here), length}, remote{reinterpret_cast<void*>(there), length};
  return memory.read(qp.process->directory(), &own, 1, &remote, 1) == 0;
}

// An atomic, by the processor's own instruction. Two system calls, or a lock, make it the slow path's.
bool change(Qp& qp, const ibv_send_wr& wr, uint64_t here, const RemoteBytes& word, const HazardGuard& guard) {
  // The guard was there first: a requester that takes the lock from now on waits for its end (AtomicsLock).
  if (word.mapped == nullptr || !guard.changes_words() || is_word_locked(qp.requester, word.address) ||
      reinterpret_cast<uintptr_t>(word.mapped) % sizeof(uint64_t) != 0)
    return false;
  auto* const place = reinterpret_cast<uint64_t*>(word.mapped);
  uint64_t before;
  if (number_in(wr.opcode) == IBV_WR_ATOMIC_CMP_AND_SWP
          ? !compare_and_swap_guarded(place, wr.wr.atomic.compare_add, wr.wr.atomic.swap, &before)
          : !fetch_add_guarded(place, wr.wr.atomic.compare_add, &before))
    return false;
  std::memcpy(reinterpret_cast<void*>(here), &before, sizeof before);
  return true;
}

}  // namespace

bool carry_out_small_rdma(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  PeerPath& path = qp.requester.path;
  SmallRdma what;
  if (!qp.fast.rdma || !is_small_rdma(qp, wr, &what) ||
      qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size)
    return false;
  guard_peer(qp, guard);
  const ibv_sge& sge = wr.sg_list[0];
  uint64_t here;
  if (!find_own_bytes(qp, wr, what.use, &here) || !is_path_unchanged(qp) || path.has_eager) return false;
  const SendOperation& operation = *find_send_operation(wr.opcode);
  const SharedQp& responder = *path.qp;
  if (check_request(operation, IBV_QPT_RC, responder.access, responder.max_dest_rd_atomic, what.at) !=
      VendorError::none)
    return false;
  RemoteBytes there;
  if (!find_remote_bytes(qp, what, sge.length, &there)) return false;
  if (what.use == MemoryUse::remote_atomic
          ? !change(qp, wr, here, there, guard)
          : !move(qp, here, there, sge.length, what.use == MemoryUse::remote_read))
    return false;

  const uint64_t packets = packets_of(sge.length, qp.requester.mtu);
  const Passing passing = passing_of(brings_response(operation));
  count_request(qp.requester, passing, sge.length, packets);
  advance(qp, passing, sge.length, packets);
  const uint64_t number = pass_through_queue(qp);
  if (qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0) {
    append_send_completion(qp, {wr.wr_id, number, wr.opcode, sge.length});
    raise_send_event(qp, false);
  }
  return true;
}

}  // namespace verbena
