// SPDX-License-Identifier: BSD-2-Clause
//
// Which access flags an MR may have, which right an operation needs, and whether a range lies inside an MR.
// Pure functions on numbers: no MR is needed.
//
// Sources: ibv_reg_mr(3); the kernel's ib_check_mr_access() in include/rdma/ib_verbs.h and
// include/uapi/rdma/ib_user_ioctl_verbs.h; InfiniBand Architecture Specification vol. 1, 10.6.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

// ---- registering --------------------------------------------------------------------------------------

// Checks `access` against the flags that ibv_reg_mr(3) takes and that the emulator supports.
// - 0: `access` is valid. Flags of IBV_ACCESS_OPTIONAL_RANGE are hints: any of them passes and has no effect.
//   HUGETLB without ON_DEMAND passes too, as in the kernel.
// - EINVAL: REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE, or bits that are no flag.
// After EINVAL, *why (if `why` is not null) is a constant string that names the rule in one line. After
// success it is null.
int check_mr_access(int access, const char** why) noexcept;

// True: the memory must be writable to be registered with `access` (kernel ib_verbs.h, ib_access_writable()).
bool needs_writable_memory(int access) noexcept;

// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT, which headers before rdma-core 45 do not have
// (IB_UVERBS_ACCESS_FLUSH_* of include/uapi/rdma/ib_user_ioctl_verbs.h). No region takes them: the device has
// no FLUSH.
inline constexpr unsigned kAccessFlush = 1u << 8 | 1u << 9;

// 0, or EINVAL where [addr, addr + length) or [iova, iova + length) would pass the end of the address space.
// A length of 0 passes here; the caller decides whether it may be registered.
int check_mr_range(uint64_t addr, uint64_t length, uint64_t iova, const char** why) noexcept;

// ---- using --------------------------------------------------------------------------------------------

enum class MemoryUse : uint8_t { local_gather, local_scatter, remote_write, remote_read, remote_atomic };

// The IBV_ACCESS_* flag that the MR must have. 0: none, because local reads are always allowed.
constexpr unsigned required_access(MemoryUse use) noexcept {
  constexpr unsigned kRequired[] = {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE,
                                    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};
  return kRequired[static_cast<unsigned>(use)];
}

constexpr bool is_remote(MemoryUse use) noexcept { return use >= MemoryUse::remote_write; }

enum class AccessCheck : uint8_t { ok, no_right, outside };

// True: [at, at + size) lies in [iova, iova + length). The check forms no sum, so nothing wraps. An empty
// range lies inside if `at` is a position in the region or just behind it. Precondition: check_mr_range() has
// passed for (iova, length).
constexpr bool covers(uint64_t iova, uint64_t length, uint64_t at, uint64_t size) noexcept {
  return at >= iova && size <= length && at - iova <= length - size;
}

// Checks the right first, then the range. The caller has found the MR by its key and PD. The caller does not
// check ranges of size 0: the specification checks no key for a zero-length RDMA operation (9.4.3, 9.4.4).
constexpr AccessCheck check_use(unsigned mr_access, uint64_t iova, uint64_t length, MemoryUse use,
                                uint64_t at, uint64_t size) noexcept {
  const unsigned need = required_access(use);
  if ((mr_access & need) != need) return AccessCheck::no_right;
  return covers(iova, length, at, size) ? AccessCheck::ok : AccessCheck::outside;
}

}  // namespace verbena
