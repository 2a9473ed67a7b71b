// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3): a second object of the program for the same object of
// the adapter. Either one may destroy it. The other one has to be unimported.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "no_cancellation.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

ibv_pd* import_pd(ibv_context* context, uint32_t handle) {
  auto* pd = allocate<VerbsPd>();
  if (pd == nullptr) return nullptr;
  if (const int error = verbena::import_pd(to_context(context)->emulated, handle, &pd->emulated); error != 0)
    return refuse(pd, error);
  pd->base.context = context;
  pd->base.handle = handle;
  return &pd->base;
}

// Programs unimport a domain before they destroy the objects in it, as pyverbs does. So it stays until its
// context is closed.
void unimport_pd(ibv_pd* ibv) {
  VerbsPd* pd = to_pd(ibv);
  std::atomic<VerbsPd*>& list = to_context(ibv->context)->unimported;
  pd->next = list.load(std::memory_order_relaxed);
  while (!list.compare_exchange_weak(pd->next, pd, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void free_unimported(VerbsContext* context) {
  VerbsPd* pd = context->unimported.exchange(nullptr, std::memory_order_acquire);
  while (pd != nullptr) {
    VerbsPd* next = pd->next;
    verbena::unimport_pd(pd->emulated);
    free(pd);
    pd = next;
  }
}

// "The addr field in the imported MR is not applicable, NULL value is expected."
ibv_mr* import_mr(ibv_pd* pd, uint32_t handle) {
  auto* mr = allocate<VerbsMr>();
  if (mr == nullptr) return nullptr;
  if (const int error = verbena::import_mr(to_pd(pd)->emulated, handle, &mr->emulated); error != 0)
    return refuse(mr, error);
  ibv_mr& ibv = mr->base.ibv_mr;
  ibv.context = pd->context;
  ibv.pd = pd;
  ibv.length = mr_length(mr->emulated);
  ibv.handle = handle;
  ibv.lkey = mr_lkey(mr->emulated);
  ibv.rkey = mr_rkey(mr->emulated);
  mr->base.mr_type = PABI_MR_TYPE_IMPORTED_MR;
  return &ibv;
}

void unimport_mr(ibv_mr* mr) { free(to_mr(reinterpret_cast<pabi_mr*>(mr))); }

ibv_dm* import_dm(ibv_context* context, uint32_t handle) {
  Dm* emulated = nullptr;
  if (const int error = verbena::import_dm(to_context(context)->emulated, handle, &emulated); error != 0)
    return refuse(error);
  return wrap_dm(context, emulated);
}

void unimport_dm(ibv_dm* dm) { free(to_dm(dm)); }

// The only supported ioctl: UVERBS_METHOD_ASYNC_EVENT_ALLOC, with which ibv_import_device(3) requests the
// asynchronous descriptor of a context that has none yet (libibverbs/cmd_device.c). For all others, ENOTTY of
// the placeholder makes libibverbs use write(2).
int answer_control(void* owner, unsigned long request, void* argument) {
  const NoCancellation guard;
  auto* context = static_cast<VerbsContext*>(owner);
  auto* command = static_cast<ib_uverbs_ioctl_hdr*>(argument);
  errno = ENOTTY;
  if (request != RDMA_VERBS_IOCTL || command == nullptr) return -1;
  if (command->object_id != UVERBS_OBJECT_ASYNC_EVENT ||
      command->method_id != UVERBS_METHOD_ASYNC_EVENT_ALLOC)
    return -1;
  if (context->base.async_fd != -1) return -1;
  for (uint16_t i = 0; i < command->num_attrs; ++i) {
    ib_uverbs_attr& attribute = command->attrs[i];
    if (attribute.attr_id != UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE) continue;
    attribute.data_s64 = context_async_fd(context->emulated);
    return 0;
  }
  errno = EINVAL;
  return -1;
}

}  // namespace verbena::verbs
