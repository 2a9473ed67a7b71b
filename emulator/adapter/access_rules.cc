// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/access_rules.h"

#include <cerrno>

namespace verbena {
namespace {

// IBV_ACCESS_OPTIONAL_RANGE of <infiniband/verbs.h>: bits 20 to 29. A device without a feature of this range
// leaves it out silently; only the bits above are an error (kernel, IB_ACCESS_SUPPORTED).
constexpr int kOptional = IBV_ACCESS_OPTIONAL_RANGE;

constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                       IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | kOptional;

constexpr int kRemoteWriting = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

struct Rule {
  int given;    // any of these bits ...
  int needs;    // ... asks for all of these,
  int refusal;  // or else this errno
  const char* why;
};

constexpr Rule kRules[] = {
    {~kKnown, ~0, EINVAL, "access has bits that are no IBV_ACCESS_ flag"},
    // ibv_reg_mr(3), ib_check_mr_access().
    {kRemoteWriting, IBV_ACCESS_LOCAL_WRITE, EINVAL,
     "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE"},
    // No rule for HUGETLB without ON_DEMAND: ibv_reg_mr(3) calls HUGETLB "applicable with" ON_DEMAND only,
    // and the kernel and mlx5 let it pass without effect.
};

int refuse(int error, const char* reason, const char** why) noexcept {
  if (why != nullptr) *why = reason;
  return error;
}

// The last byte of a range of `length` bytes at `start` has an address.
constexpr bool fits(uint64_t start, uint64_t length) noexcept {
  return length == 0 || length - 1 <= UINT64_MAX - start;
}

}  // namespace

int check_mr_access(int access, const char** why) noexcept {
  for (const Rule& rule : kRules)
    if ((access & rule.given) != 0 && (access & rule.needs) != rule.needs)
      return refuse(rule.refusal, rule.why, why);
  return refuse(0, nullptr, why);
}

bool needs_writable_memory(int access) noexcept {
  return (access & (IBV_ACCESS_LOCAL_WRITE | kRemoteWriting | IBV_ACCESS_MW_BIND)) != 0;
}

int check_mr_range(uint64_t addr, uint64_t length, uint64_t iova, const char** why) noexcept {
  if (!fits(addr, length)) return refuse(EINVAL, "addr + length passes the end of the address space", why);
  if (!fits(iova, length)) return refuse(EINVAL, "iova + length passes the end of the address space", why);
  return refuse(0, nullptr, why);
}

}  // namespace verbena
