// SPDX-License-Identifier: BSD-2-Clause
#include "engine/placement.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace verbena {
namespace {

constexpr size_t kMaxRanges = PeerAdapter::kMaxRanges;

// The part [from, from + size) of a list of ranges.
size_t cut(const iovec* ranges, size_t count, uint64_t from, uint64_t size, iovec* out) {
  size_t used = 0;
  for (size_t i = 0; i < count && size != 0 && used < kMaxRanges - 1; ++i) {
    if (from >= ranges[i].iov_len) {
      from -= ranges[i].iov_len;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(ranges[i].iov_len - from, size);
    out[used++] = {static_cast<char*>(ranges[i].iov_base) + from, n};
    from = 0;
    size -= n;
  }
  return used;
}

// Splits the last range so that the bytes of the last aligned 8-byte word at the destination are a range of
// their own. The kernel copies range after range (mm/process_vm_access.c, lib/iov_iter.c), and string
// instructions promise order between each other, not within.
size_t split_last_word(iovec* local, size_t locals, uint64_t destination_end) {
  iovec& last = local[locals - 1];
  const uint64_t word = ((destination_end - 1) & 7) + 1;
  if (last.iov_len <= word) return locals;
  local[locals] = {static_cast<char*>(last.iov_base) + (last.iov_len - word), word};
  last.iov_len -= word;
  return locals + 1;
}

// Whose memory was it? Reads every page of the local ranges the way the kernel would.
bool local_memory_readable(const iovec* ranges, size_t count) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < count; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(ranges[i].iov_base);
    const uintptr_t end = begin + ranges[i].iov_len;
    for (uintptr_t at = begin; at < end; at = (at / page + 1) * page) {
      char byte;
      iovec here{&byte, 1}, there{reinterpret_cast<void*>(at), 1};
      if (syscall(SYS_process_vm_readv, getpid(), &here, 1UL, &there, 1UL, 0UL) != 1) return errno == EPERM;
    }
  }
  return true;
}

Placed verdict(int error, const iovec* local, size_t locals) {
  if (error == ESRCH) return Placed::kGone;
  return local_memory_readable(local, locals) ? Placed::kRemoteFault : Placed::kLocalFault;
}

Placed advance(SendRequest& request, uint32_t size) {
  request.done += size;
  return request.done == request.length ? Placed::kWhole : Placed::kPartly;
}

}  // namespace

Placed place_slice(Qp& initiator, SendRequest& request, const LocalBytes& local, const iovec* remote,
                   size_t remotes) {
  const uint32_t size = std::min(request.length - request.done, kSliceSize);
  iovec from[kMaxRanges];
  iovec to[kMaxRanges];
  size_t froms = cut(local.ranges, local.count, request.done, size, from);
  const size_t tos = cut(remote, remotes, request.done, size, to);
  if (size > 8 && request.done + size == request.length && request.opcode != IBV_WR_SEND &&
      request.opcode != IBV_WR_SEND_WITH_IMM)
    froms = split_last_word(from, froms, reinterpret_cast<uintptr_t>(to[tos - 1].iov_base) + to[tos - 1].iov_len);
  const int error = initiator.path.adapter->write(initiator.process->directory(), from, froms, to, tos);
  if (error != 0) return verdict(error, from, froms);
  return advance(request, size);
}

Placed fetch_slice(Qp& initiator, SendRequest& request, const LocalBytes& local, const iovec& remote) {
  const uint32_t size = std::min(request.length - request.done, kSliceSize);
  iovec to[kMaxRanges];
  const size_t tos = cut(local.ranges, local.count, request.done, size, to);
  const iovec from{static_cast<char*>(remote.iov_base) + request.done, size};
  const int error = initiator.path.adapter->read(initiator.process->directory(), to, tos, &from, 1);
  if (error != 0) return verdict(error, to, tos);
  return advance(request, size);
}

Placed change_atomically(Qp& initiator, const SendRequest& request, uint64_t address, uint64_t* before) {
  PeerAdapter& adapter = *initiator.path.adapter;
  const NodeDirectory& directory = initiator.process->directory();
  const Residence& home = initiator.process->home();
  std::atomic<uint64_t>& lock = adapter.view().header().atomics_lock;
  const uint64_t mine = (uint64_t{home.slot()} + 1) << 32 | home.generation();

  // The own process's threads share `mine`, so they take turns before it.
  static SpinLock own_turn;
  own_turn.lock();
  for (uint64_t holder = 0; !lock.compare_exchange_weak(holder, mine, std::memory_order_acquire);) {
    if (holder == 0) continue;
    const auto slot = static_cast<uint32_t>(holder >> 32) - 1;
    if (slot >= kMaxSlots || !directory.alive(slot, static_cast<uint32_t>(holder))) {
      // It died with the lock: its operation has taken place or it has not; it tells nobody of a result.
      if (lock.compare_exchange_strong(holder, mine, std::memory_order_acquire)) break;
    } else {
      sched_yield();
    }
    holder = 0;
  }

  iovec remote{reinterpret_cast<void*>(address), 8};
  iovec local{before, 8};
  int error = adapter.read(directory, &local, 1, &remote, 1);
  if (error == 0) {
    uint64_t after = *before;
    const bool changes = request.opcode != IBV_WR_ATOMIC_CMP_AND_SWP || *before == request.compare_add;
    if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
      after = request.swap;
    else
      after += request.compare_add;
    iovec value{&after, 8};
    if (changes) error = adapter.write(directory, &value, 1, &remote, 1);
  }
  uint64_t held = mine;
  lock.compare_exchange_strong(held, 0, std::memory_order_release);
  own_turn.unlock();
  if (error == ESRCH) return Placed::kGone;
  return error == 0 ? Placed::kWhole : Placed::kRemoteFault;
}

namespace {

// False: a key has just ended. Then the bytes are for the owner to scatter, who is about to (dereg_mr).
bool scatter_to_peer(Qp& initiator, const Cqe& entry) {
  PeerPath& path = initiator.path;
  const SegmentView& view = path.adapter->view();
  // The running number's high bits are lost in the entry; the ring needs the low ones only.
  const ReceiveWqe& wqe = path.receives.wqe(entry.index);
  uint32_t left = entry.byte_len;
  const bool in_entry = (entry.flags & kCqeInline) != 0;
  if (left > (in_entry ? kCqeInlineSize : kLandingSize)) return true;
  iovec local{in_entry ? static_cast<void*>(const_cast<uint8_t*>(entry.payload))
                       : static_cast<void*>(path.receives.landing(entry.index)),
              left};
  iovec remote[kMaxRanges];
  size_t remotes = 0;
  for (uint32_t i = 0; i < std::min(wqe.sge_count, path.receives.max_sge) && left != 0; ++i) {
    const WqeSge sge = wqe.sge[i];
    if (sge.length == 0) continue;
    const uint32_t n = std::min(sge.length, left);
    const Translation place =
        translate(view, sge.lkey, false, path.qp->pd, MemoryUse::local_scatter, sge.address, n);
    if (place.check != KeyCheck::kOk || remotes == kMaxRanges) return false;
    remote[remotes++] = {reinterpret_cast<void*>(place.address), n};
    left -= n;
  }
  path.adapter->write(initiator.process->directory(), &local, 1, remote, remotes);
  return true;
}

}  // namespace

void settle_landed(Qp& initiator) {
  PeerPath& path = initiator.path;
  if (!path.has_landed) return;
  const CompletionRing& ring = path.completions;
  const uint64_t last = path.last_landed_position;
  const auto lies_landed = [&](uint64_t position) {
    const CqeState state = CqeState::unpack(ring.entry(position).state.load(std::memory_order_acquire));
    return state.lap == ring.lap(position) && state.kind == CqeKind::kLanded;
  };
  // A QP's entries are consumed in order: when the last is, all are.
  if (lies_landed(last)) {
    uint64_t position = ring.cq->head.load(std::memory_order_acquire);
    if (last - position > uint64_t{1} << ring.order) position = last;
    for (; position <= last; ++position) {
      Cqe& entry = ring.entry(position);
      if (!lies_landed(position) || entry.qp_index != path.index || entry.qp_birth != path.birth) continue;
      const uint32_t lap = ring.lap(position);
      uint64_t landed = CqeState{lap, 0, CqeKind::kLanded}.pack();
      const uint64_t placing = CqeState{lap, initiator.process->home().worker(), CqeKind::kPlacing}.pack();
      if (!entry.state.compare_exchange_strong(landed, placing, std::memory_order_acq_rel)) continue;
      const CqeKind now = scatter_to_peer(initiator, entry) ? CqeKind::kPublished : CqeKind::kLanded;
      entry.state.store(CqeState{lap, 0, now}.pack(), std::memory_order_release);
    }
  }
  path.has_landed = false;
}

}  // namespace verbena
