// SPDX-License-Identifier: BSD-2-Clause
//
// The keys of one adapter: memory regions and memory windows. The owner adds and removes keys. Every process
// that works on the adapter looks them up.
//
// Sources for windows: InfiniBand Architecture Specification vol. 1, 10.6.7; ibv_alloc_mw(3), ibv_bind_mw(3).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "adapter/access_rules.h"
#include "adapter/segment.h"

namespace verbena {

enum class KeyCheck : uint8_t { kOk, kUnknown, kOtherPd, kNoRight, kOutside, kOtherQp };

struct Translation {
  KeyCheck check;
  uint64_t address;        // in the owner's address space, when ok
  bool on_demand = false;  // a region whose pages may be absent
};

// May the owner copy eager data to [address, address + size), as a receive request with `lkey` of `pd` says?
// While the key is valid, and from invalidate() to recycle().
bool is_scatter_target(const SegmentView& segment, uint32_t lkey, uint32_t pd, uint64_t address,
                       uint64_t size);

// translate() for entries that are not plain regions. Precondition: `mr` was valid with the key's tag.
Translation translate_special(const SegmentView& segment, const SharedMr& mr, MemoryKey parts, uint32_t qpn,
                              MemoryUse use, uint64_t at, uint64_t size);

// Checks whether `key` may be used in `pd` for `use` on [at, at + size). `remote`: the key must be an rkey,
// else an lkey. `qpn`: the responder's QP, for rkeys. The entry stays valid while the caller is the owner and
// holds off removal, or holds a hazard guard (hazard_guard.h).
inline Translation translate(const SegmentView& segment, uint32_t key, bool remote, uint32_t pd,
                             MemoryUse use, uint64_t at, uint64_t size, uint32_t qpn = 0) {
  const MemoryKey parts = MemoryKey::unpack(key);
  if (parts.index == 0 || parts.index >= kMaxMrsPerProcess || parts.remote != remote)
    return {KeyCheck::kUnknown, 0};
  if (parts.index >= segment.keys_used()) return {KeyCheck::kUnknown, 0};
  const SharedMr* mr = segment.mr(parts.index);
  if (mr == nullptr || mr->valid.load(std::memory_order_acquire) != (kKeyValid | parts.tag))
    return {KeyCheck::kUnknown, 0};
  if (!segment.is_own()) {
    if (mr->check != check_of(*mr)) [[unlikely]]
      return {KeyCheck::kUnknown, 0};
  } else if (remote) {
    // A window is unbound in the shared entry alone. The owner's copy is written again once the guards of
    // those that have seen it bound have ended.
    const SharedMr* entry = segment.shared_mr(parts.index);
    if (entry == nullptr || entry->valid.load(std::memory_order_acquire) != (kKeyValid | parts.tag))
      return {KeyCheck::kUnknown, 0};
  }
  if (mr->pd != pd) return {KeyCheck::kOtherPd, 0};
  if (mr->kind != KeyKind::kRegion) [[unlikely]]
    return translate_special(segment, *mr, parts, qpn, use, at, size);
  switch (check_use(mr->access, mr->iova, mr->length, use, at, size)) {
    case AccessCheck::ok:
      return {KeyCheck::kOk, mr->address + (at - mr->iova), (mr->access & IBV_ACCESS_ON_DEMAND) != 0};
    case AccessCheck::no_right:
      return {KeyCheck::kNoRight, 0};
    case AccessCheck::outside:
      break;
  }
  return {KeyCheck::kOutside, 0};
}

// The owner's side. Thread-safe.
class MemoryTable {
 public:
  struct Region {
    uint32_t pd;
    uint32_t access;
    uint64_t iova;
    uint64_t length;
    uint64_t address;
    KeyKind kind = KeyKind::kRegion;
    bool mappable = false;  // see SharedMr::mappable
  };

  // Adds a region; *lkey and *rkey name it from now on. ENOMEM: the table is full.
  int add(OwnSegment& segment, const Region& region, uint32_t* lkey, uint32_t* rkey);

  // Gives invalidated keys a new region; the keys are valid again on return. Between invalidate() and this
  // call the caller has waited for hazard guards.
  void change(OwnSegment& segment, uint32_t lkey, const Region& region);

  // Adds a window that is not bound. *rkey is its key, except for the tag. ENOMEM: the table is full.
  int add_window(OwnSegment& segment, KeyKind kind, uint32_t pd, uint32_t* rkey);

  // Binds the window of `rkey`, which is not bound, under the tag of `rkey`. Since the window was last bound,
  // the caller has waited for hazard guards. `window.kind` does not change. `region`: index of the region
  // that it is part of. Peers that can map that can reach the window through the mapping.
  void bind_window(OwnSegment& segment, uint32_t rkey, const Region& window, uint32_t qpn, uint32_t region);

  // Makes the keys invalid, except for is_scatter_target(), and begins a new epoch. The caller then waits for
  // hazard guards before it treats the region as unused, and calls recycle() last.
  void invalidate(OwnSegment& segment, uint32_t lkey);
  void recycle(OwnSegment& segment, uint32_t lkey);  // or the rkey of a window

  // The memory of registration `mappable` (SharedMr::mappable) turns out to be nothing that a peer can map.
  void not_mappable(OwnSegment& segment, uint32_t index, uint32_t mappable);

 private:
  int take_index(OwnSegment& segment, uint32_t* index);
  void fill_entries(OwnSegment& segment, uint32_t index, const Region& region);

  std::mutex mutex_;
  std::deque<uint32_t> free_;  // first in, first out: a key is reused as late as possible
  uint32_t next_ = 1;
  std::atomic<uint32_t> mappable_{0};  // the last number given
};

// The shared entry of a window's `rkey`, bound with that tag or not. nullptr: `rkey` names no window.
SharedMr* find_window(const SegmentView& segment, uint32_t rkey);

// Unbinds the window if it is bound with the tag of `rkey`, else returns false. Holders of hazard guards may
// still be using the window. For the owner and its peers.
bool unbind_window(SharedMr& window, uint32_t rkey);

}  // namespace verbena
