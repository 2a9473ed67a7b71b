// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/mapped_bytes.h"

#include "adapter/access_rules.h"
#include "engine/objects/process.h"
#include "engine/rules/transfer_means.h"
#include "fabric/guarded_copy.h"
#include "keep_errno.h"

namespace verbena {

MappedBytes find_mapped_slowly(RequesterContext& requester, const SharedMr& mr, uint64_t address,
                               uint64_t size, bool writes) {
  return requester.payload != nullptr
             ? MappedBytes{}
             : find_mapped_in(*requester.process, *requester.path.memory, mr, address, size, writes);
}

MappedBytes find_mapped_in(Process& process, PeerAdapter& adapter, const SharedMr& mr, uint64_t address,
                           uint64_t size, bool writes) {
  using State = MappedRegions::State;
  // This process's own memory needs no mapping, but has no guard against pages that are gone.
  if (adapter.view().is_own() || !adapter.is_within_reach()) return {};
  const MappedRegions::Found found =
      adapter.regions().find(mr.region, mr.mappable.load(std::memory_order_acquire));
  if (found.is_new) {
    const KeepErrno guard;
    process.peers().note_region();
    process.membership().kick();
  }
  // kTaken: another thread is making the entry.
  if (found.file == nullptr)
    return {nullptr,
            found.state == State::kTaken || found.state == State::kWanted || found.state == State::kAsked};
  const MappedFile& file = *found.file;
  const Reach reach{.within_reach = true,
                    .mapped = covers(file.address, file.length, address, size),
                    .writable = file.writable,
                    .takes_sigbus = may_copy_guarded()};
  if (choose_means(reach, writes) != TransferMeans::kCopy) return {};
  return {file.bytes + (address - file.address), false, file.address, file.length};
}

}  // namespace verbena
