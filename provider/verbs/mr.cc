// SPDX-License-Identifier: BSD-2-Clause
#include <unistd.h>

#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// The kernel maps whole pages, so a buffer and its iova must begin at the same place within one
// (drivers/infiniband/core/uverbs_cmd.c, ib_uverbs_reg_mr).
bool same_place_in_page(const void* addr, uint64_t iova) {
  const uint64_t mask = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
  return (reinterpret_cast<uintptr_t>(addr) & mask) == (iova & mask);
}

}  // namespace

// ibv_reg_mr(3) arrives with iova == addr, whatever the flags; a zero-based region begins at 0.
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  if (!same_place_in_page(addr, iova)) return refuse(EINVAL);
  auto* mr = allocate<VerbsMr>();
  if (mr == nullptr) return nullptr;
  const uint64_t first = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  if (const int error = verbena::reg_mr(to_pd(pd)->emulated, addr, length, first, access, &mr->emulated);
      error != 0) {
    return refuse(mr, error);
  }
  ibv_mr& ibv = mr->base.ibv_mr;
  ibv.context = pd->context;
  ibv.handle = mr_handle(mr->emulated);
  ibv.lkey = mr_lkey(mr->emulated);
  ibv.rkey = mr_rkey(mr->emulated);
  mr->base.mr_type = PABI34_MR_TYPE_MR;
  mr->base.access = access;
  return &ibv;
}

int dereg_mr(pabi34_mr* base) {
  VerbsMr* mr = to_mr(base);
  if (const int error = verbena::dereg_mr(mr->emulated); error != 0) return answer(error);
  free(mr);
  return 0;
}

}  // namespace verbena::verbs
