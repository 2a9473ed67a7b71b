// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/quota.h"

#include <errno.h>

#include "adapter/clock.h"
#include "adapter/lower_count.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "faults/injection.h"
#include "observe/log.h"

namespace verbena {
namespace {

struct Kind {
  uint64_t DeviceLimits::*limit;
  const char* name;
};

constexpr Kind kKinds[] = {
    {&DeviceLimits::max_qp, "max_qp"},
    {&DeviceLimits::max_cq, "max_cq"},
    {&DeviceLimits::max_mr, "max_mr"},
    {&DeviceLimits::max_mw, "max_mw"},
    {&DeviceLimits::max_pd, "max_pd"},
    {&DeviceLimits::max_ah, "max_ah"},
    {&DeviceLimits::max_srq, "max_srq"},
    {&DeviceLimits::max_xrcd, "max_xrcd"},
    {&DeviceLimits::max_res_rd_atom, "max_res_rd_atom"},
    {&DeviceLimits::max_dm_size, "max_dm_size"},
};
static_assert(std::size(kKinds) == static_cast<size_t>(Counted::kKinds));

const Kind& kind_of(Counted kind) { return kKinds[static_cast<size_t>(kind)]; }

}  // namespace

uint64_t limit_of(const DeviceLimits& limits, Counted kind) { return limits.*kind_of(kind).limit; }
const char* name_of(Counted kind) { return kind_of(kind).name; }

int Quota::take(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind,
                uint64_t amount) {
  std::lock_guard lock(mutex_);
  return take_unlocked(directory, slot, device, kind, amount);
}

int Quota::take_unlocked(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind,
                         uint64_t amount) {
  const uint64_t limit = limit_of(directory.devices().devices[device].limits, kind);
  if (amount > limit) return ENOMEM;
  // First count, then sum up: of two processes that do so at once, at least one sees the count of the other.
  std::atomic<uint32_t>& own = directory.count(device, kind, slot);
  own.fetch_add(static_cast<uint32_t>(amount), std::memory_order_seq_cst);
  uint64_t sum = 0;
  const std::atomic<uint32_t>* counts = &directory.count(device, kind, 0);  // of all slots, side by side
  for (uint32_t i = 0; i < kMaxSlots && sum <= limit; ++i) {
    const uint32_t there = counts[i].load(std::memory_order_seq_cst);
    if (there != 0 && (i == slot || directory.occupied(i))) sum += there;
  }
  if (sum <= limit) return 0;
  lower_count(own, static_cast<uint32_t>(amount));
  return ENOMEM;
}

void Quota::give(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind,
                 uint64_t amount) {
  lower_count(directory.count(device, kind, slot), static_cast<uint32_t>(amount));
}

int take_quota(Context& context, Counted kind, const char* verb, uint64_t amount) {
  Process& process = *context.process;
  if (limit_of(context.device->limits, kind) == 0) {
    VERBENA_WARN(feature_absent, "%s: %s is 0: the device has none", verb, name_of(kind));
    return EOPNOTSUPP;
  }
  if (faults::Injection* const injection = faults::injection(); injection != nullptr) [[unlikely]]
    if (injection->refuses(static_cast<uint32_t>(kind), now_ns())) {
      VERBENA_WARN(fault_on_purpose, "%s: refused on purpose (verbena run --faults)", verb);
      return ENOMEM;
    }
  const int error = process.quota().take(process.directory(), process.membership().slot(),
                                         context.device_index, kind, amount);
  if (error != 0)
    VERBENA_WARN(limit_reached, "%s: %s is %llu, and the programs of this node have them all", verb,
                 name_of(kind), static_cast<unsigned long long>(limit_of(context.device->limits, kind)));
  return error;
}

int change_quota(Context& context, Counted kind, const char* verb, uint64_t from, uint64_t to) {
  if (to > from) return take_quota(context, kind, verb, to - from);
  if (to < from) give_quota(context, kind, from - to);
  return 0;
}

void give_quota(Context& context, Counted kind, uint64_t amount) {
  give_quota(*context.process, context.device_index, kind, amount);
}

void give_quota(Process& process, uint32_t device, Counted kind, uint64_t amount) {
  process.quota().give(process.directory(), process.membership().slot(), device, kind, amount);
}

}  // namespace verbena
