// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/window_rules.h"

namespace verbena {
namespace {

constexpr uint32_t kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// LOCAL_WRITE has no meaning for a window; mlx5 and rxe accept it.
constexpr uint32_t kAllowed = kRemote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
constexpr uint32_t kWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

const char* check_binding(const WindowState& window, const MemoryTable::Region* region,
                          const Binding& binding) {
  const bool type2 = window.kind == KeyKind::kWindow2;
  if (window.pd != window.qp_pd) return "the window and the queue pair are of different protection domains";
  if ((binding.access & ~kAllowed) != 0)
    return "a window has remote access flags and IBV_ACCESS_ZERO_BASED only";
  if (type2 && window.is_bound) return "a window of type 2 is invalidated before it is bound again";
  if (!type2 && (binding.access & IBV_ACCESS_ZERO_BASED) != 0)
    return "a window of type 1 cannot be zero-based";
  if (binding.length == 0)
    return type2 ? "a window of type 2 is invalidated by IBV_WR_LOCAL_INV, not by a length of 0" : nullptr;
  if (region == nullptr || region->kind != KeyKind::kRegion)
    return "there is no memory region with that lkey";
  if (region->pd != window.pd) return "the window and the region are of different protection domains";
  if ((region->access & IBV_ACCESS_MW_BIND) == 0) return "the region has no IBV_ACCESS_MW_BIND";
  if ((binding.access & kWriting) != 0 && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0)
    return "remote writing and atomics need IBV_ACCESS_LOCAL_WRITE on the region";
  // As rxe and mlx5 (providers/mlx5/qp.c, mlx5_bind_mw).
  if ((region->access & IBV_ACCESS_ZERO_BASED) != 0) return "the region is zero-based";
  if (!covers(region->iova, region->length, binding.address, binding.length))
    return "the range leaves the region";
  return nullptr;
}

MemoryTable::Region bound_region(const WindowState& window, const MemoryTable::Region& region,
                                 const Binding& binding) {
  return {.pd = window.pd,
          .access = binding.access,
          .iova = (binding.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : binding.address,
          .length = binding.length,
          .address = region.address + (binding.address - region.iova),
          .kind = window.kind};
}

}  // namespace verbena
