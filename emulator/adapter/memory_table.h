// SPDX-License-Identifier: BSD-2-Clause
//
// The keys of one adapter: memory regions and memory windows. The owner adds and removes; everybody who works
// on the adapter looks up.
//
// Sources for windows: InfiniBand Architecture Specification vol. 1, 10.6.7; ibv_alloc_mw(3), ibv_bind_mw(3).
#pragma once

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

// translate() for what is no plain region: `mr` was valid with the key's tag.
Translation translate_special(const SharedMr& mr, MemoryKey parts, uint32_t qpn, MemoryUse use, uint64_t at,
                              uint64_t size);

// May `key` be used in `pd` for `use` on [at, at + size)? `remote` tells which of the two keys it must be;
// `qpn` is the responder's QP, for remote keys. The entry stays what it is for as long as the caller is the
// owner holding off removal, or a visitor (hazards.h).
inline Translation translate(const SegmentView& segment, uint32_t key, bool remote, uint32_t pd,
                             MemoryUse use, uint64_t at, uint64_t size, uint32_t qpn = 0) {
  const MemoryKey parts = MemoryKey::unpack(key);
  if (parts.index == 0 || parts.index >= kMaxMrsPerProcess || parts.remote != remote)
    return {KeyCheck::kUnknown, 0};
  if (parts.index >= segment.header().mr_high_water.load(std::memory_order_acquire))
    return {KeyCheck::kUnknown, 0};
  const SharedMr* mr = segment.mr(parts.index);
  if (mr == nullptr || mr->valid.load(std::memory_order_acquire) != (0x100u | parts.tag))
    return {KeyCheck::kUnknown, 0};
  if (mr->pd != pd) return {KeyCheck::kOtherPd, 0};
  if (mr->kind != KeyKind::kRegion) [[unlikely]]
    return translate_special(*mr, parts, qpn, use, at, size);
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

// The region that one user of keys named last, as long as no key of the adapter has ended since. For one
// adapter, which is the user's own or which he visits (hazards.h), one PD and one use; not thread-safe.
class KnownRegion {
 public:
  // True: translate() says kOk, and of a region whose pages are there. False: ask translate(). `epoch`:
  // SegmentHeader::mr_epoch, acquired. As long as that stays, so does the answer; *address is then where `at`
  // lies.
  bool covers(uint32_t epoch, uint32_t key, uint64_t at, uint64_t size, uint64_t* address) const {
    *address = at + shift_;
    return key == key_ && epoch == epoch_ && verbena::covers(iova_, length_, at, size);
  }

  // Remembers what translate() has found, if it is of the kind that covers() answers for.
  void remember(const SegmentView& segment, uint32_t key, uint32_t pd, MemoryUse use);

 private:
  uint32_t key_ = 0;
  uint32_t epoch_ = 0;
  uint64_t iova_ = 0;
  uint64_t length_ = 0;  // 0: nothing is known
  uint64_t shift_ = 0;   // from what the program calls a byte to where it lies
};

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
  };

  // Enters a region; *lkey and *rkey name it from now on. ENOMEM: the table is full.
  int add(OwnSegment& segment, const Region& region, uint32_t* lkey, uint32_t* rkey);

  // Gives invalidated keys another meaning; they are valid again on return. Between invalidate() and here the
  // caller has waited for visitors.
  void change(OwnSegment& segment, uint32_t lkey, const Region& region);

  // Enters a window that is not bound; *rkey will be its name, but for the tag. ENOMEM: the table is full.
  int add_window(OwnSegment& segment, KeyKind kind, uint32_t pd, uint32_t* rkey);

  // Binds the window of `rkey`, which is not bound, under the tag of `rkey`. The caller has waited for
  // visitors since it was bound last. `window.kind` is what it was.
  void bind_window(OwnSegment& segment, uint32_t rkey, const Region& window, uint32_t qpn);

  // Makes the keys invalid and begins a new epoch. The caller then waits for visitors before anybody may
  // think that the region is out of use, and calls recycle() last.
  void invalidate(OwnSegment& segment, uint32_t lkey);
  void recycle(uint32_t lkey);  // or the rkey of a window

 private:
  int take_index(OwnSegment& segment, uint32_t* index);

  std::mutex mutex_;
  std::deque<uint32_t> free_;  // first in, first out: a key is reused as late as can be
  uint32_t next_ = 1;
};

// The entry of a window's `rkey`, bound with that tag or not; nullptr: it is no window's.
SharedMr* find_window(const SegmentView& segment, uint32_t rkey);

// Unbinds the window if it is bound with the tag of `rkey`, else false. Visitors may still be using it. Owner
// and peers.
bool unbind_window(SharedMr& window, uint32_t rkey);

}  // namespace verbena
