// SPDX-License-Identifier: BSD-2-Clause
//
// The memory of one adapter: a memfd that its owner fills and that peers map. No SIGBUS can occur. The owner
// reserves memory (fallocate(2)) before anything in it is used, and a peer's view checks every offset against
// the size that it has mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "adapter/changes.h"
#include "adapter/layout.h"
#include "adapter/refusals.h"

namespace verbena {

// Typed, bounds-checked access to a mapped segment, the owner's or a peer's. Does not own the mapping.
class SegmentView {
 public:
  SegmentView() = default;
  // `own_keys`: see mr(); nullptr for a peer's segment.
  SegmentView(std::byte* base, uint64_t size, SharedMr* own_keys = nullptr)
      : base_(base), size_(size), own_keys_(own_keys) {}

  std::byte* base() const { return base_; }
  uint64_t size() const { return size_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

  Changes& changes() const { return *reinterpret_cast<Changes*>(base_ + kChangesOffset); }
  Refusals& refusals() const { return *reinterpret_cast<Refusals*>(base_ + kRefusalsOffset); }

  ListedObject& listed(uint32_t index) const {  // index < kMaxListed
    return reinterpret_cast<ListedObject*>(base_ + kListedOffset)[index % kMaxListed];
  }

  // Table entries; nullptr beyond the table.
  SharedQp* qp(uint32_t index) const {
    return index < kMaxQpsPerProcess ? at<SharedQp>(kQpTableOffset + sizeof(SharedQp) * index) : nullptr;
  }
  SharedCq* cq(uint32_t index) const {
    return index < kMaxCqsPerProcess ? at<SharedCq>(kCqTableOffset + sizeof(SharedCq) * index) : nullptr;
  }
  SharedSrq* srq(uint32_t index) const {
    return index < kMaxSrqsPerProcess ? at<SharedSrq>(kSrqTableOffset + sizeof(SharedSrq) * index) : nullptr;
  }
  SharedMr* shared_mr(uint32_t index) const {
    return index < kMaxMrsPerProcess ? at<SharedMr>(kMrTableOffset + sizeof(SharedMr) * uint64_t{index})
                                     : nullptr;
  }
  // The entry to believe. The owner has a copy of its table in private memory: a damaged segment does not
  // lead it to addresses outside its regions. Whether a window is bound stands in the shared entry alone.
  SharedMr* mr(uint32_t index) const {
    if (own_keys_ == nullptr) return shared_mr(index);
    return index < kMaxMrsPerProcess ? own_keys_ + index : nullptr;
  }
  bool is_own() const { return own_keys_ != nullptr; }
  // The number of entries that may be looked at.
  uint32_t keys_used() const {
    return is_own() ? kMaxMrsPerProcess : header().mr_high_water.load(std::memory_order_acquire);
  }

  // `count` objects at `offset`. nullptr: they do not lie within the segment, or are misaligned.
  template <typename T>
  T* at(uint64_t offset, uint64_t count = 1) const {
    if (offset >= size_ || offset % alignof(T) != 0 || count > (size_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<T*>(base_ + offset);
  }

 private:
  std::byte* base_ = nullptr;
  uint64_t size_ = 0;
  SharedMr* own_keys_ = nullptr;
};

// The owner's segment, with the allocator of its heap. Thread-safe.
class OwnSegment {
 public:
  OwnSegment() = default;
  OwnSegment(const OwnSegment&) = delete;
  OwnSegment& operator=(const OwnSegment&) = delete;
  ~OwnSegment();

  // Creates the memfd and maps it. The size is address space, not memory: 32 GiB; where RLIMIT_AS is
  // set, a sixteenth of that or 256 MiB; less where RLIMIT_FSIZE demands it. ENOMEM, EMFILE.
  // A core dump has the first 64 MiB that are committed (core(5), madvise(2)): QPs, CQs, keys, small queues.
  int create(uint64_t node_id, uint32_t slot, uint32_t slot_generation);

  const SegmentView& view() const { return view_; }
  int fd() const { return fd_; }

  // Reserves memory behind [offset, offset + size). 0 or ENOMEM.
  int commit(uint64_t offset, uint64_t size);

  // Zeroed heap memory, aligned to a pair of cache lines. 0: no memory (ENOMEM).
  uint64_t allocate(uint64_t size);
  void release(uint64_t offset, uint64_t size);

  // Precondition: no other process maps the segment, and its contents are no longer needed. Gives up the
  // memory, the descriptor and the address space that was never used. The rest stays mapped, as zeros, for
  // objects that still point to it.
  void abandon();

 private:
  int commit_locked(uint64_t offset, uint64_t size);
  void include_in_dumps(uint64_t offset, uint64_t size);

  int map_own_keys();

  SegmentView view_;
  SharedMr* own_keys_ = nullptr;
  int fd_ = -1;
  std::mutex mutex_;
  std::vector<bool> committed_;        // by kChunk
  uint64_t dumped_ = 0;                // bytes that a core dump has
  std::map<uint64_t, uint64_t> free_;  // offset -> size, coalesced
  uint64_t fresh_ = kHeapOffset;       // the heap from here on was never used: known to be zero
};

// A peer's segment, mapped read-write: initiators write completions into it.
class PeerSegment {
 public:
  PeerSegment() = default;
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;
  ~PeerSegment();

  // Maps `fd`, which stays the caller's. EPROTO: not a segment, another layout version, damaged, or of
  // another adapter.
  int map(int fd, uint64_t node_id, uint32_t slot, uint32_t slot_generation, bool writable = true);
  const SegmentView& view() const { return view_; }

 private:
  SegmentView view_;
};

}  // namespace verbena
