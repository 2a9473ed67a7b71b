// SPDX-License-Identifier: BSD-2-Clause
#include "engine/receive/bounce_memory.h"

#include "adapter/bounce_ring.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "observe/log.h"

namespace verbena {
namespace {

// Of one process: 64 MiB. The requesters of other queue pairs place their messages by system calls.
constexpr uint32_t kMostRings = 512;

void release_ring(Process& process, std::byte* bytes) {
  process.segment().release(static_cast<uint64_t>(bytes - process.view().base()), kBounceRingSize);
  process.bounce_rings.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

void make_bounce_ring(Qp& qp) {
  if (qp.bounce_ring.load(std::memory_order_acquire) != nullptr) return;
  Process& process = *qp.process;
  if (process.bounce_rings.fetch_add(1, std::memory_order_relaxed) >= kMostRings) {
    process.bounce_rings.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  const uint64_t offset = process.segment().allocate(kBounceRingSize);
  if (offset == 0) {
    process.bounce_rings.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  std::byte* const bytes = process.view().base() + offset;
  std::byte* none = nullptr;
  if (!qp.bounce_ring.compare_exchange_strong(none, bytes, std::memory_order_acq_rel))
    return release_ring(process, bytes);
  qp.shared->bounce_ring_offset.store(offset, std::memory_order_release);
}

void unmake_bounce_ring(Qp& qp) {
  std::byte* const bytes = qp.bounce_ring.exchange(nullptr, std::memory_order_acq_rel);
  if (bytes == nullptr) return;
  qp.shared->bounce_ring_offset.store(0, std::memory_order_release);
  release_ring(*qp.process, bytes);
}

BouncedMessage find_bounced(const Qp& qp, uint64_t position, uint32_t length) {
  const BounceRing ring{qp.bounce_ring.load(std::memory_order_acquire)};
  if (ring.bytes == nullptr || !BounceRing::holds(position, length)) {
    VERBENA_ERROR(
        receive_damaged,
        "QP 0x%06x: the place of a message of %u bytes has been damaged in shared memory: %llu; the "
        "message is lost",
        qp.shared->qpn, length, static_cast<unsigned long long>(position));
    return {};
  }
  return {ring.at(position), BounceRing::end(position, length)};
}

void free_bounced(Qp& qp, const BouncedMessage& message) {
  std::atomic<uint64_t>& freed = qp.shared->bounce_ring_freed;
  // The position was read from shared memory: at most it frees what there is.
  if (message.end - freed.load(std::memory_order_relaxed) <= kBounceRingSize)
    freed.store(message.end, std::memory_order_release);
}

}  // namespace verbena
