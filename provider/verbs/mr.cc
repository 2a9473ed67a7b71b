// SPDX-License-Identifier: BSD-2-Clause
#include <unistd.h>

#include "observe/log.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// The kernel maps whole pages, so a buffer and its iova must have the same offset within a page
// (drivers/infiniband/core/uverbs_cmd.c, ib_uverbs_reg_mr).
bool same_place_in_page(uint64_t addr, uint64_t iova) {
  const uint64_t mask = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
  return (addr & mask) == (iova & mask);
}

std::nullptr_t refuse_iova(const char* verb, uint64_t begin, size_t length, uint64_t iova) {
  VERBENA_WARN(mr_attributes,
               "%s: begin 0x%llx, length %zu, iova 0x%llx: the two begin at different places of a page", verb,
               static_cast<unsigned long long>(begin), length, static_cast<unsigned long long>(iova));
  return refuse(EINVAL);
}

// Registers with `reg(&emulated)`. libibverbs sets the address, if there is one.
template <typename Register>
ibv_mr* make_mr(ibv_pd* pd, pabi_mr_type type, int access, Register reg) {
  if (const int error = check_handles("ibv_reg_mr", pd); error != 0) return refuse(error);
  auto* mr = allocate<VerbsMr>();
  if (mr == nullptr) return nullptr;
  if (const int error = reg(&mr->emulated); error != 0) return refuse(mr, error);
  ibv_mr& ibv = mr->base.ibv_mr;
  ibv.context = pd->context;
  ibv.pd = pd;
  ibv.handle = mr_handle(mr->emulated);
  ibv.lkey = mr_lkey(mr->emulated);
  ibv.rkey = mr_rkey(mr->emulated);
  ibv.length = mr_length(mr->emulated);
  mr->base.mr_type = type;
  mr->base.access = access;
  return &ibv;
}

}  // namespace

// ibv_reg_mr(3) arrives with iova == addr, whatever the flags; a zero-based region begins at 0.
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  if (!same_place_in_page(reinterpret_cast<uintptr_t>(addr), iova))
    return refuse_iova("ibv_reg_mr_iova", reinterpret_cast<uintptr_t>(addr), length, iova);
  const uint64_t first = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  return make_mr(pd, PABI_MR_TYPE_MR, access, [&](Mr** out) {
    return verbena::reg_mr(to_pd(pd)->emulated, addr, length, first, access, out);
  });
}

// As libibverbs/cmd_mr.c, ibv_cmd_reg_mr_ex: either an address, or a dma-buf with an offset and an iova.
// There are no DMA handles (ibv_alloc_dmah: EOPNOTSUPP).
ibv_mr* reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* public_attr) {
  const auto& attr = *reinterpret_cast<const pabi_mr_init_attr*>(public_attr);
  constexpr uint64_t kBuffer = PABI_REG_MR_ADDR, kDmabuf = PABI_REG_MR_FD | PABI_REG_MR_FD_OFFSET;
  const bool with_iova = (attr.comp_mask & PABI_REG_MR_IOVA) != 0;
  const uint64_t place = attr.comp_mask & ~uint64_t{PABI_REG_MR_IOVA};
  if (place == kBuffer)
    return reg_mr(pd, attr.addr, attr.length, with_iova ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr),
                  attr.access);
  if (place == kDmabuf && with_iova)
    return reg_dmabuf_mr(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, attr.access);
  const bool known = (place & ~(kBuffer | kDmabuf)) == 0;
  VERBENA_WARN(mr_attributes, "ibv_reg_mr_ex: comp_mask 0x%llx: %s",
               static_cast<unsigned long long>(attr.comp_mask),
               known ? "it has to name an address, or a dma-buf with its offset and an iova"
                     : "a DMA handle, or a later extension");
  return refuse(known ? EINVAL : EOPNOTSUPP);
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  if (!same_place_in_page(offset, iova)) return refuse_iova("ibv_reg_dmabuf_mr", offset, length, iova);
  return make_mr(pd, PABI_MR_TYPE_DMABUF_MR, access, [&](Mr** out) {
    return verbena::reg_dmabuf_mr(to_pd(pd)->emulated, offset, length, iova, fd, access, out);
  });
}

// Not PABI_MR_TYPE_MR: libibverbs has not protected it from fork(2), so dereg must not undo that.
// libibverbs refuses ibv_rereg_mr(3) for this type; device memory does not support it anyway.
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  if (const int error = check_handles("ibv_reg_dm_mr", dm); error != 0) return refuse(error);
  return make_mr(pd, PABI_MR_TYPE_DMABUF_MR, static_cast<int>(access), [&](Mr** out) {
    return verbena::reg_dm_mr(to_pd(pd)->emulated, to_dm(dm)->emulated, offset, length, access, out);
  });
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  return make_mr(pd, PABI_MR_TYPE_NULL_MR, 0,
                 [&](Mr** out) { return verbena::alloc_null_mr(to_pd(pd)->emulated, out); });
}

// ibv_rereg_mr(3) converts the result to IBV_REREG_MR_ERR_..., and updates address, length and PD.
int rereg_mr(pabi_mr* base, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  VerbsMr* mr = to_mr(base);
  ibv_pd* const named_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : nullptr;
  if (const int error = check_handles("ibv_rereg_mr", base, named_pd); error != 0) return answer(error);
  Pd* target = (flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd != nullptr ? to_pd(pd)->emulated : nullptr;
  if (const int error = verbena::rereg_mr(mr->emulated, flags, target, addr, length, access); error != 0)
    return answer(error);
  if (target != nullptr) base->ibv_mr.context = pd->context;
  return 0;
}

int dereg_mr(pabi_mr* base) {
  if (const int error = check_end("ibv_dereg_mr", base); error != 0) return answer(error);
  VerbsMr* mr = to_mr(base);
  if (const int error = verbena::dereg_mr(mr->emulated); error != 0) return answer(error);
  free(mr);
  return 0;
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges, uint32_t count) {
  if (const int error = check_end("ibv_advise_mr", pd); error != 0) return answer(error);
  return answer(verbena::advise_mr(to_pd(pd)->emulated, advice, flags, sges, count));
}

}  // namespace verbena::verbs
