// SPDX-License-Identifier: BSD-2-Clause
//
// Which access flags an MR may have, which right an operation needs, and whether a range lies inside one.
// Pure; needs no MR.
//
// Sources: ibv_reg_mr(3); the kernel's ib_check_mr_access() in include/rdma/ib_verbs.h and
// include/uapi/rdma/ib_user_ioctl_verbs.h; InfiniBand Architecture Specification vol. 1, 10.6.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

// ---- registering --------------------------------------------------------------------------------------

// Is `access` something ibv_reg_mr(3) takes, and something the emulator builds?
//   0           yes. Flags of IBV_ACCESS_OPTIONAL_RANGE are hints: any of them passes and asks for nothing.
//               HUGETLB without ON_DEMAND passes too, as in the kernel.
//   EINVAL      REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE; bits that are no flag
// *why (if `why` is not null) names the rule in one line, a constant string, and is null after success.
int check_mr_access(int access, const char** why) noexcept;

// Must the memory be writable to be registered so? (kernel ib_verbs.h, ib_access_writable())
bool needs_writable_memory(int access) noexcept;

// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT, which headers before rdma-core 45 do not have
// (IB_UVERBS_ACCESS_FLUSH_* of include/uapi/rdma/ib_user_ioctl_verbs.h). No region takes them: the device has no FLUSH.
inline constexpr unsigned kAccessFlush = 1u << 8 | 1u << 9;

// 0, or EINVAL where [addr, addr + length) or [iova, iova + length) would pass the end of the address space.
// A length of 0 is fine here; whether it may be registered is the caller's rule.
int check_mr_range(uint64_t addr, uint64_t length, uint64_t iova, const char** why) noexcept;

// ---- using --------------------------------------------------------------------------------------------

enum class MemoryUse : uint8_t { local_gather, local_scatter, remote_write, remote_read, remote_atomic };

// The IBV_ACCESS_* flag that the MR must have; 0: none (local reading is always allowed).
constexpr unsigned required_access(MemoryUse use) noexcept {
  constexpr unsigned kRequired[] = {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE,
                                    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};
  return kRequired[static_cast<unsigned>(use)];
}

constexpr bool is_remote(MemoryUse use) noexcept { return use >= MemoryUse::remote_write; }

enum class AccessCheck : uint8_t { ok, no_right, outside };

// Does [at, at + size) lie in [iova, iova + length)? No sum is formed, so nothing wraps. An empty range lies
// inside if `at` is a position in or just behind the region. check_mr_range has held for (iova, length).
constexpr bool covers(uint64_t iova, uint64_t length, uint64_t at, uint64_t size) noexcept {
  return at >= iova && size <= length && at - iova <= length - size;
}

// Right first, then range. The caller has found the MR by its key and PD, and has not asked for ranges of
// size 0 at all: the specification checks no key for a zero-length RDMA operation (9.4.3, 9.4.4).
constexpr AccessCheck check_use(unsigned mr_access, uint64_t iova, uint64_t length, MemoryUse use,
                                uint64_t at, uint64_t size) noexcept {
  const unsigned need = required_access(use);
  if ((mr_access & need) != need) return AccessCheck::no_right;
  return covers(iova, length, at, size) ? AccessCheck::ok : AccessCheck::outside;
}

}  // namespace verbena
