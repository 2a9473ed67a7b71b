// SPDX-License-Identifier: BSD-2-Clause
//
// Moves the bytes of a message between the memory of the requester and that of the responder, in chunks.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "engine/responder/responder.h"

namespace verbena {

// Bytes moved in one call, some 100 us. Keys are checked again before the next chunk. With 256 KiB a transfer
// of 1 MiB took 10 % longer.
inline constexpr uint32_t kChunkSize = 1024 * 1024;

// Where the responder's ranges are in this process (mapped_bytes.h), if all of them are. `epoch`: of the
// responder's regions (SegmentHeader::mr_epoch) when they were looked up. If it is another one after a copy,
// the owner may have put other memory in the place meanwhile (fork(2)), and the bytes are moved once more, by
// system call.
struct MappedRanges {
  std::byte* const* bytes = nullptr;
  uint32_t epoch = 0;
};

enum class Placed : uint8_t { kWhole, kPartly, kLocalFault, kRemoteFault, kGone, kBusy };

// Writes the next chunk of `local` to `remote`, which has at least request.length bytes. The last aligned
// word of an RDMA WRITE becomes visible last.
Placed place_chunk(RequesterContext& requester, Request& request, const LocalBytes& local,
                   const iovec* remote, size_t remotes, const MappedRanges& mapped = {});

// The same for a WRITE with one range on either side, of more than 8 bytes and at most a chunk, without a
// PayloadStream. 0, or an errno of PeerAdapter::write().
int place_at_once(const RequesterContext& requester, uint64_t here, uint64_t there, uint32_t size);

// Reads the next chunk of `remote` into `local`.
Placed fetch_chunk(RequesterContext& requester, Request& request, const LocalBytes& local,
                   const iovec& remote, const MappedRanges& mapped = {});

// Carries out the atomic at `address` of the responder. *before is the value before. Atomic with regard to
// all RDMA atomics on that adapter. kBusy: another requester holds the lock, and nothing has happened; to be
// called again.
Placed change_atomically(RequesterContext& requester, const Request& request, uint64_t address,
                         const MappedRanges& mapped, uint64_t* before);

// Does a requester hold the lock for atomics on that word, to read and write it? Under a hazard guard that
// changes words (HazardGuard::changes_words()): if not, none begins before the guard ends.
inline bool is_word_locked(const RequesterContext& requester, uint64_t address) {
  const auto& lock = requester.path.memory->view().header().atomics_locks[atomics_lock_of(address)];
  return lock.holder.load(std::memory_order_acquire) != 0;
}

// Has every eager message of this QP for `remote` (addresses of the responder) been scattered? Eager messages
// lie in the receive slots until their completions are polled, and what would overlap one of them has to
// wait. False: the responder's service thread has been asked to scatter them; to be called again.
bool eager_is_settled(RequesterContext& requester, const iovec* remote, size_t remotes);

// Does a message in the slot of `wqe` go into one of the ranges? The owner may have scattered the message
// meanwhile and be posting the slot again. Then either result will do, and all that the owner did before is
// visible.
bool leads_into(const ReceiveWqe& wqe, uint32_t max_sge, const iovec* ranges, size_t count);

}  // namespace verbena
