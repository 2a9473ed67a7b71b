// SPDX-License-Identifier: BSD-2-Clause
//
// On-demand paging. The pages of every region are resolved on access, so only advice is implemented here
// (ibv_advise_mr(3)).
#include <errno.h>

#include "emulator.h"
#include "engine/memory/region_pages.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/rules/program_enum.h"
#include "observe/log.h"

namespace verbena {
namespace {

struct Advice {
  unsigned number;
  bool writes;  // the pages must be writable
  bool faults;  // brings absent pages in
};
constexpr Advice kAdvices[] = {{IBV_ADVISE_MR_ADVICE_PREFETCH, false, true},
                               {IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, true, true},
                               {IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, false, false}};

const Advice* find_advice(unsigned number) {
  for (const Advice& advice : kAdvices)
    if (advice.number == number) return &advice;
  return nullptr;
}

struct Range {
  uint64_t address;
  uint64_t length;
};

// 0, or the errno of ibv_advise_mr(3) for the element. The checks are in the kernel's order (mlx5/odp.c,
// get_prefetchable_mr).
int find_range(const Pd& pd, const Advice& advice, const ibv_sge& sge, Range* out, const char** why) {
  MemoryObjects& objects = pd.context->process->memory_objects();
  std::lock_guard lock(objects.mutex);
  const auto refuse = [&](int error, const char* reason) {
    *why = reason;
    return error;
  };
  const auto found = objects.mrs.find(MemoryKey::unpack(sge.lkey).index);
  if (found == objects.mrs.end() || found->second->lkey != sge.lkey)
    return refuse(ENOENT, "no region has the lkey");
  const MemoryTable::Region& region = found->second->region;
  if ((region.access & IBV_ACCESS_ON_DEMAND) == 0)
    return refuse(ENOENT, "the region is not IBV_ACCESS_ON_DEMAND");
  if (region.pd != pd.handle) return refuse(EPERM, "the region is of another protection domain");
  if (advice.writes && !needs_writable_memory(static_cast<int>(region.access)))
    return refuse(EPERM, "the region is not registered for writing");
  if (!covers(region.iova, region.length, sge.addr, sge.length))
    return refuse(EFAULT, "the range leaves the region");
  *out = {region.address + (sge.addr - region.iova), sge.length};
  return 0;
}

}  // namespace

int advise_mr(Pd* pd, ibv_advise_mr_advice advice, uint32_t flags, const ibv_sge* sges, uint32_t count) {
  if (int error = usable(*pd->context); error != 0) return error;
  const Advice* row = find_advice(number_in(advice));
  const auto refused = [&](int error, const char* rule) {
    VERBENA_WARN(advise, "ibv_advise_mr: PD %u: advice %u, flags 0x%x, %u elements: %s", pd->handle,
                 number_in(advice), flags, count, rule);
    return error;
  };
  if (row == nullptr) return refused(EOPNOTSUPP, "the device takes no such advice");
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0)
    return refused(EINVAL, "there is IBV_ADVISE_MR_FLAG_FLUSH only");
  // As the kernel, uverbs_std_types_mr.c.
  if (count == 0 || sges == nullptr) return refused(EINVAL, "there is none");
  const bool waits = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
  // All or nothing: every element is checked before any page is touched.
  Range range{};
  const char* why = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    if (int error = find_range(*pd, *row, sges[i], &range, &why); error != 0) {
      VERBENA_WARN(advise, "ibv_advise_mr: element %u, lkey 0x%x, address 0x%llx, length %u: %s", i,
                   sges[i].lkey, static_cast<unsigned long long>(sges[i].addr), sges[i].length, why);
      return error;
    }
  }
  if (!row->faults) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (sges[i].length == 0 || find_range(*pd, *row, sges[i], &range, &why) != 0) continue;
    const int error = bring_in_pages(range.address, range.length, row->writes);
    // Without FLUSH the program does not wait for the pages, and missing pages are not reported.
    if (error != 0 && waits) return error;
  }
  return 0;
}

}  // namespace verbena
