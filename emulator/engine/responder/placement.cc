// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/placement.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/responder/mapped_bytes.h"
#include "engine/responder/payload_stream.h"
#include "engine/responder/pieces.h"
#include "engine/responder/response_event.h"
#include "engine/responder/xrc_target.h"
#include "fabric/guarded_copy.h"
#include "fabric/hazards.h"
#include "fabric/own_memory.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint64_t kPage = 4096;  // the smallest there is

constexpr size_t kMaxRanges = PeerAdapter::kMaxRanges;

size_t cut(const iovec* ranges, size_t count, uint64_t from, uint64_t size, iovec* out) {
  return cut_ranges(ranges, count, from, size, out, kMaxRanges - 2);
}

// The order of the bytes of a WRITE of more than 8 bytes is kept by the local ranges: the kernel copies one
// range after the other (mm/process_vm_access.c, lib/iov_iter.c). Within a range it copies words from the
// first byte on, or uses string instructions, depending on the processor (arch/x86/lib/memcpy_64.S). These
// are ordered among each other, not within.
//
// The number of bytes before the first aligned word at the destination. They are a range of their own, so
// that the next range begins with that word.
uint64_t before_first_word(uint64_t destination) { return -destination & 7; }

// The number of bytes in the last aligned word. They are a range of their own as well.
uint64_t in_last_word(uint64_t destination_end) { return ((destination_end - 1) & 7) + 1; }

size_t split_first_word(iovec* local, size_t locals, uint64_t destination) {
  const uint64_t before = before_first_word(destination);
  if (before == 0 || local[0].iov_len <= before) return locals;
  std::copy_backward(local, local + locals, local + locals + 1);
  local[0].iov_len = before;
  local[1] = {static_cast<char*>(local[1].iov_base) + before, local[1].iov_len - before};
  return locals + 1;
}

size_t split_last_word(iovec* local, size_t locals, uint64_t destination_end) {
  iovec& last = local[locals - 1];
  const uint64_t word = in_last_word(destination_end);
  if (last.iov_len <= word) return locals;
  local[locals] = {static_cast<char*>(last.iov_base) + (last.iov_len - word), word};
  last.iov_len -= word;
  return locals + 1;
}

// Was it the local memory that failed? Reads every page of the local ranges as the kernel would.
bool local_memory_readable(const iovec* ranges, size_t count) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < count; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(ranges[i].iov_base);
    const uintptr_t end = begin + ranges[i].iov_len;
    for (uintptr_t at = begin; at < end; at = (at / page + 1) * page)
      if (!is_reachable(at, false)) return false;
  }
  return true;
}

// Writes one range. The last aligned word becomes visible last.
int place_in_order(const RequesterContext& requester, uint64_t here, uint64_t there, uint32_t size) {
  iovec from[3];
  size_t froms = 0;
  // Field by field: loading a pair as a whole after its halves were stored is slow.
  const auto add = [&](uint64_t length) {
    from[froms].iov_base = reinterpret_cast<void*>(here);
    from[froms++].iov_len = length;
    here += length;
  };
  uint64_t left = size;
  if (const uint64_t before = before_first_word(there); before != 0 && left > before)
    add(before), left -= before;
  if (const uint64_t word = in_last_word(there + size); left > word) add(left - word), left = word;
  add(left);
  const iovec to{reinterpret_cast<void*>(there), size};
  return requester.path.memory->write(requester.process->directory(), from, froms, &to, 1);
}

// On processors with FSRM the kernel copies by `rep movsb` (arch/x86/lib/copy_user_64.S). A destination that
// begins shortly after the source would be overwritten by what is still to be read, so such a copy goes byte
// by byte, and the processor compares the addresses modulo 4 KiB only. A reader then sees parts of aligned
// words. (Measured on an AMD EPYC with Linux 6.18: torn with distances of 1 to 15, never with others.)
bool seems_to_overlap(uint64_t here, uint64_t there) {
  constexpr uint64_t kNear = 64;
  return ((there - here) & (kPage - 1)) - 1 < kNear - 1;
}

// The same range, page by page, by way of a buffer with the same offsets within the page.
int place_by_pages(const RequesterContext& requester, uint64_t here, uint64_t there, uint32_t size) {
  std::byte two_pages[2 * kPage];
  const uint64_t page = (reinterpret_cast<uintptr_t>(two_pages) + kPage - 1) & ~(kPage - 1);
  for (uint64_t done = 0, n = 0; done < size; done += n) {
    const uint64_t offset = (there + done) & (kPage - 1);
    n = std::min(size - done, kPage - offset);
    const iovec from{reinterpret_cast<void*>(here + done), n};
    if (!local_memory_readable(&from, 1)) return EFAULT;
    std::memcpy(reinterpret_cast<void*>(page + offset), from.iov_base, n);
    const int error = place_in_order(requester, page + offset, there + done, static_cast<uint32_t>(n));
    if (error != 0) return error;
  }
  return 0;
}

// A list of ranges to one place.
int place_list_by_pages(const RequesterContext& requester, const iovec* from, size_t froms, uint64_t there) {
  for (size_t i = 0; i < froms; ++i) {
    const int error = place_by_pages(requester, reinterpret_cast<uintptr_t>(from[i].iov_base), there,
                                     static_cast<uint32_t>(from[i].iov_len));
    if (error != 0) return error;
    there += from[i].iov_len;
  }
  return 0;
}

bool any_seems_to_overlap(const iovec* from, size_t froms, uint64_t there) {
  for (size_t i = 0; i < froms; there += from[i++].iov_len)
    if (seems_to_overlap(reinterpret_cast<uintptr_t>(from[i].iov_base), there)) return true;
  return false;
}

Placed verdict(int error, const RequesterContext& requester, const iovec* local, size_t locals) {
  if (error == ESRCH) return Placed::kGone;
  if (is_refusal(error))
    VERBENA_WARN(
        memory_unreachable,
        "QP 0x%06x: the memory of the process in slot %u cannot be reached (errno %d): see verbena doctor",
        requester.qpn, requester.path.memory->slot(), error);
  return local_memory_readable(local, locals) ? Placed::kRemoteFault : Placed::kLocalFault;
}

Placed advance(Request& request, uint32_t size) {
  request.done += size;
  return request.done == request.length ? Placed::kWhole : Placed::kPartly;
}

}  // namespace

size_t cut_ranges(const iovec* ranges, size_t count, uint64_t from, uint64_t size, iovec* out, size_t most) {
  size_t used = 0;
  for (size_t i = 0; i < count && size != 0 && used < most; ++i) {
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

namespace {

// The next `size` bytes of the request, by copying between two lists of ranges of this process. They have the
// same length. False: a page is gone.
bool copy_ranges(const iovec* to, size_t tos, const iovec* from, size_t froms) {
  size_t f = 0, from_done = 0;
  for (size_t t = 0; t < tos; ++t) {
    for (size_t done = 0; done < to[t].iov_len;) {
      while (f < froms && from_done == from[f].iov_len) ++f, from_done = 0;
      if (f == froms) return false;
      const size_t n = std::min(to[t].iov_len - done, from[f].iov_len - from_done);
      if (!copy_guarded(static_cast<char*>(to[t].iov_base) + done,
                        static_cast<const char*>(from[f].iov_base) + from_done, n))
        return false;
      done += n;
      from_done += n;
    }
  }
  return true;
}

bool place_mapped(const RequesterContext& requester, const Request& request, const iovec* from, size_t froms,
                  const iovec* remote, size_t remotes, const MappedRanges& mapped, uint32_t size) {
  if (mapped.bytes == nullptr || !requester.path.memory->alive(requester.process->directory())) return false;
  iovec here[kMaxRanges];
  for (size_t i = 0; i < remotes; ++i) here[i] = {mapped.bytes[i], remote[i].iov_len};
  iovec to[kMaxRanges];
  return copy_ranges(to, cut(here, remotes, request.done, size, to), from, froms) &&
         is_current(requester, mapped.epoch);
}

}  // namespace

Placed place_chunk(RequesterContext& requester, Request& request, const LocalBytes& local,
                   const iovec* remote, size_t remotes, const MappedRanges& mapped) {
  if (requester.payload != nullptr) {
    const uint32_t before = request.done;
    const Placed placed = requester.payload->place(request, remote, remotes);
    if (observer() != nullptr) [[unlikely]]
      keep_placed(requester, before, request.done, remote, remotes);
    return placed;
  }
  uint32_t size = std::min(request.length - request.done, std::min(requester.longest_chunk, kChunkSize));
  // No aligned word at the destination is split between two chunks.
  if (remotes == 1 && request.done + size < request.length && size > 8)
    size -=
        static_cast<uint32_t>((reinterpret_cast<uintptr_t>(remote[0].iov_base) + request.done + size) & 7);
  iovec from[kMaxRanges];
  iovec to[kMaxRanges];
  size_t froms = cut(local.ranges, local.count, request.done, size, from);
  if (const uint64_t order = order_on_purpose(requester, request); order != 0) [[unlikely]] {
    const int error = place_in_pieces(requester, request, local, remote, remotes, size, order);
    return error != 0 ? verdict(error, requester, from, froms) : advance(request, size);
  }
  if (place_mapped(requester, request, from, froms, remote, remotes, mapped, size))
    return advance(request, size);
  const size_t tos = cut(remote, remotes, request.done, size, to);
  const bool is_write = request.opcode != IBV_WR_SEND && request.opcode != IBV_WR_SEND_WITH_IMM;
  if (is_write && tos == 1 &&
      any_seems_to_overlap(from, froms, reinterpret_cast<uintptr_t>(to[0].iov_base))) {
    const int error =
        place_list_by_pages(requester, from, froms, reinterpret_cast<uintptr_t>(to[0].iov_base));
    return error != 0 ? verdict(error, requester, from, froms) : advance(request, size);
  }
  if (size > 8 && is_write) {
    froms = split_first_word(from, froms, reinterpret_cast<uintptr_t>(to[0].iov_base));
    if (request.done + size == request.length)
      froms = split_last_word(from, froms,
                              reinterpret_cast<uintptr_t>(to[tos - 1].iov_base) + to[tos - 1].iov_len);
  }
  const int error = requester.path.memory->write(requester.process->directory(), from, froms, to, tos);
  if (error != 0) return verdict(error, requester, from, froms);
  return advance(request, size);
}

int place_at_once(const RequesterContext& requester, uint64_t here, uint64_t there, uint32_t size) {
  if (seems_to_overlap(here, there)) [[unlikely]]
    return place_by_pages(requester, here, there, size);
  return place_in_order(requester, here, there, size);
}

Placed fetch_chunk(RequesterContext& requester, Request& request, const LocalBytes& local,
                   const iovec& remote, const MappedRanges& mapped) {
  if (requester.payload != nullptr) {
    if (observer() != nullptr) [[unlikely]]
      keep_fetched(requester, remote);
    return requester.payload->fetch(request, remote);
  }
  const uint32_t size = std::min(request.length - request.done, kChunkSize);
  iovec to[kMaxRanges];
  const size_t tos = cut(local.ranges, local.count, request.done, size, to);
  const iovec from{static_cast<char*>(remote.iov_base) + request.done, size};
  const NodeDirectory& directory = requester.process->directory();
  if (mapped.bytes != nullptr && requester.path.memory->alive(directory)) {
    const iovec here{mapped.bytes[0] + request.done, size};
    if (copy_ranges(to, tos, &here, 1) && is_current(requester, mapped.epoch)) return advance(request, size);
  }
  const int error = requester.path.memory->read(directory, to, tos, &from, 1);
  if (error != 0) return verdict(error, requester, to, tos);
  return advance(request, size);
}

// Takes the lock that serialises atomics on the adapter, for some 20 us at most. An atomic makes two system
// calls. A process may be stopped between them, and must not stop the others.
namespace {

bool take_atomics_lock(std::atomic<uint64_t>& lock, uint64_t mine, const NodeDirectory& directory) {
  for (int tries = 0; tries < 20; ++tries) {
    uint64_t holder = 0;
    if (lock.compare_exchange_strong(holder, mine, std::memory_order_acquire)) return true;
    // It names this process, and no thread of this process is at work there: this thread has the lock for
    // that. The word is a peer's memory, and damaged.
    if (holder == mine) return true;
    const auto slot = static_cast<uint32_t>(holder >> 32) - 1;
    if (slot >= kMaxSlots || !directory.alive(slot, static_cast<uint32_t>(holder))) {
      // The holder died with the lock. Its operation has taken place or not; no result was reported.
      if (lock.compare_exchange_strong(holder, mine, std::memory_order_acquire)) return true;
    }
    sched_yield();
  }
  return false;
}

// The processor's own operation on a mapped word. False: the page is gone.
bool change_mapped(const Request& request, std::byte* mapped, uint64_t* before) {
  auto* const word = reinterpret_cast<uint64_t*>(mapped);
  return request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP
             ? compare_and_swap_guarded(word, request.compare_add, request.swap, before)
             : fetch_add_guarded(word, request.compare_add, before);
}

// Waits until no requester is changing a word in place that has not seen the lock. False: a process is
// stopped, and the request is to be tried again.
bool others_have_seen_lock(const PeerAdapter& adapter, const NodeDirectory& directory) {
  constexpr int64_t kPatience = 20'000;  // ns
  return adapter.view().header().may_be_mapped.load(std::memory_order_seq_cst) == 0 ||
         word_changes_released(directory, adapter.slot(), kPatience);
}

// As a read and a write.
int change_by_system_calls(PeerAdapter& adapter, const NodeDirectory& directory, const Request& request,
                           uint64_t address, uint64_t* before) {
  iovec remote{reinterpret_cast<void*>(address), 8};
  iovec local{before, 8};
  int error = adapter.read(directory, &local, 1, &remote, 1);
  if (error != 0) return error;
  uint64_t after = *before;
  const bool changes = request.opcode != IBV_WR_ATOMIC_CMP_AND_SWP || *before == request.compare_add;
  if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
    after = request.swap;
  else
    after += request.compare_add;
  iovec value{&after, 8};
  if (changes) error = adapter.write(directory, &value, 1, &remote, 1);
  return error;
}

}  // namespace

Placed change_atomically(RequesterContext& requester, const Request& request, uint64_t address,
                         const MappedRanges& mapped, uint64_t* before) {
  PeerAdapter& adapter = *requester.path.memory;
  const NodeDirectory& directory = requester.process->directory();
  const NodeMembership& membership = requester.process->membership();
  const uint32_t which = atomics_lock_of(address);
  std::atomic<uint64_t>& lock = adapter.view().header().atomics_locks[which].holder;
  const uint64_t mine = (uint64_t{membership.slot()} + 1) << 32 | membership.generation();

  // The threads of one process share `mine`, so a mutex serialises them first.
  SpinLock& own_lock = adapter.own_atomics[which];
  if (!own_lock.try_lock()) return Placed::kBusy;
  if (!take_atomics_lock(lock, mine, directory)) {
    own_lock.unlock();
    return Placed::kBusy;
  }
  // Under the lock in either case: a requester that has not mapped the word reads and writes it.
  std::byte* const word =
      mapped.bytes != nullptr && is_current(requester, mapped.epoch) ? mapped.bytes[0] : nullptr;
  const bool aligned = reinterpret_cast<uintptr_t>(word) % 8 == 0;
  int error = 0;
  if (word == nullptr || !aligned || !change_mapped(request, word, before))
    error = others_have_seen_lock(adapter, directory)
                ? change_by_system_calls(adapter, directory, request, address, before)
                : EBUSY;
  uint64_t held = mine;
  lock.compare_exchange_strong(held, 0, std::memory_order_release);
  own_lock.unlock();
  if (error == EBUSY) return Placed::kBusy;
  if (error == ESRCH) return Placed::kGone;
  return error == 0 ? Placed::kWhole : Placed::kRemoteFault;
}

namespace {

// Does the eager message of `entry` go into one of the ranges?
bool overlaps(const PeerPath& path, const Cqe& entry, const iovec* remote, size_t remotes) {
  const SharedReceiveRing& shared = path.shared_receives;
  return shared.shared != nullptr
             ? leads_into(shared.wqe(entry.index & static_cast<uint32_t>(shared.mask())), shared.max_sge,
                          remote, remotes)
             : leads_into(path.receives.wqe(entry.index), path.receives.max_sge, remote, remotes);
}

}  // namespace

bool leads_into(const ReceiveWqe& wqe, uint32_t max_sge, const iovec* ranges, size_t count) {
  const uint32_t sge_count = std::min(wqe.observe_count(), max_sge);
  for (uint32_t i = 0; i < sge_count; ++i) {
    const WqeSge sge = wqe.sge[i].observe();
    const uint64_t end = sge.address + sge.length;
    for (size_t r = 0; r < count; ++r) {
      const auto at = reinterpret_cast<uint64_t>(ranges[r].iov_base);
      if (at < end && sge.address < at + ranges[r].iov_len) return true;
    }
  }
  return false;
}

bool eager_is_settled(RequesterContext& requester, const iovec* remote, size_t remotes) {
  PeerPath& path = requester.path;
  if (!path.has_eager) return true;
  const CompletionRing& ring = path.completions;
  // While the CQ is being resized it takes a moment until all eager messages are scattered.
  const uint32_t generation = ring.cq->ring_generation.load(std::memory_order_acquire);
  if (ring.cq->scattered_generation.load(std::memory_order_acquire) != generation) return false;
  if (path.eager_generation != generation) {
    path.has_eager = false;
    return true;
  }
  // Entries before the head were scattered when they were polled.
  const uint64_t head = ring.places->head.load(std::memory_order_acquire);
  uint64_t position = std::max(path.first_eager_position, head);
  const uint32_t index = path.target != nullptr ? path.target->index : path.index;
  const uint32_t incarnation = path.target != nullptr ? path.target->incarnation : path.incarnation;
  // The ring has no more entries. The positions are read from the peer's memory, and may be any distance
  // apart.
  const uint64_t last = path.last_eager_position;
  if (last >= position && last - position >= ring.capacity()) position = last - ring.capacity() + 1;
  bool any = false;
  for (uint64_t steps = ring.capacity(); position <= last && steps != 0; ++position, --steps) {
    const Cqe& entry = ring.entry(position);
    if (entry.state.load(std::memory_order_acquire) != ring.word(position, CqeKind::kEager)) continue;
    if (entry.qp_index != index || entry.qp_incarnation != incarnation) continue;
    if (!any) path.first_eager_position = position;
    any = true;
    if (!overlaps(path, entry, remote, remotes)) continue;
    const bool asked = path.target != nullptr
                           ? path.target->srq->scatter_wanted.exchange(1, std::memory_order_acq_rel) != 0
                           : (path.qp->pending_flags.fetch_or(kPendingScatter, std::memory_order_acq_rel) &
                              kPendingScatter) != 0;
    if (asked) return false;
    if (path.target != nullptr)
      path.memory->report(*path.target->srq);
    else
      path.memory->report(*path.qp);
    return false;
  }
  path.has_eager = any;
  return true;
}

}  // namespace verbena
