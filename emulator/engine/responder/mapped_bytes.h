// SPDX-License-Identifier: BSD-2-Clause
//
// Where the responder's bytes are in this process, if it has mapped the region that they are in
// (fabric/mapped_regions.h).
#pragma once

#include <cstdint>

#include "engine/objects/fast_path_state.h"
#include "engine/objects/requester_context.h"

namespace verbena {

struct MappedBytes {
  std::byte* bytes = nullptr;  // nullptr: not mapped, or not for this use
  bool is_pending = false;     // they may be soon: to be looked up again with the next request
  // The whole mapping, in the responder's address space. Known to this process, not read from the segment.
  uint64_t mapping = 0;
  uint64_t mapping_size = 0;
};

// Remembers for the requests that follow what find_mapped() has found at `address`, and that the region that
// known.region has is mapped as far as the mapping goes.
inline void remember_mapped(KnownRemote& known, const MappedBytes& found, uint64_t address) {
  known.is_mapped = found.bytes != nullptr;
  known.to_mapping = reinterpret_cast<uint64_t>(found.bytes) - address;
  if (found.is_pending)
    known.region.forget();
  else if (known.is_mapped)
    known.region.narrow_to(found.mapping, found.mapping_size);
}

// The epoch of the responder's regions. Loaded before find_mapped(), it tells afterwards whether what was
// found still holds.
inline uint32_t mapping_epoch(const RequesterContext& requester) {
  return requester.path.memory->view().header().mr_epoch.load(std::memory_order_acquire);
}
inline bool is_current(const RequesterContext& requester, uint32_t epoch) {
  return mapping_epoch(requester) == epoch;
}

// [address, address + size) of the region or window `mr` of `adapter`, if this process has mapped it or may
// do so. For requests that this process carries out for its own program. Asks for the mapping if there is
// none yet. Under a hazard guard.
MappedBytes find_mapped_in(Process& process, PeerAdapter& adapter, const SharedMr& mr, uint64_t address,
                           uint64_t size, bool writes);

// As find_mapped(), for a region that may be mapped.
MappedBytes find_mapped_slowly(RequesterContext& requester, const SharedMr& mr, uint64_t address,
                               uint64_t size, bool writes);

// [address, address + size), in the responder's address space, of the region or window that `key` names: an
// lkey or an rkey that translate() has found valid under the hazard guard that the caller holds. `writes`:
// they are to be written. Asks for the mapping if there is none yet.
inline MappedBytes find_mapped(RequesterContext& requester, uint32_t key, uint64_t address, uint64_t size,
                               bool writes) {
  const SegmentView& view = requester.path.memory->view();
  const SharedMr* const mr = view.mr(MemoryKey::unpack(key).index);
  if (mr == nullptr || mr->mappable.load(std::memory_order_acquire) == 0) [[likely]]
    return {};
  return find_mapped_slowly(requester, *mr, address, size, writes);
}

}  // namespace verbena
