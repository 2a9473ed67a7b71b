// SPDX-License-Identifier: BSD-2-Clause
#include <dlfcn.h>

#include "boundary/claim.h"
#include "rdma_core/libibverbs_imports.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// The whole supported surface. Everything else answers EOPNOTSUPP (libibverbs/dummy_ops.c).
const pabi34_context_ops kContextOps = {
    .alloc_pd = alloc_pd,
    .attach_mcast = attach_mcast,
    .cq_event = cq_event,
    .create_ah = create_ah,
    .create_cq = create_cq,
    .create_qp = create_qp,
    .create_qp_ex = create_qp_ex,
    .create_srq = create_srq,
    .create_srq_ex = create_srq_ex,
    .dealloc_pd = dealloc_pd,
    .dereg_mr = dereg_mr,
    .destroy_ah = destroy_ah,
    .destroy_cq = destroy_cq,
    .destroy_qp = destroy_qp,
    .destroy_srq = destroy_srq,
    .detach_mcast = detach_mcast,
    .free_context = free_context,
    .get_srq_num = get_srq_num,
    .modify_qp = modify_qp,
    .modify_srq = modify_srq,
    .poll_cq = poll_cq,
    .post_recv = post_recv,
    .post_send = post_send,
    .post_srq_recv = post_srq_recv,
    .query_device_ex = query_device_ex,
    .query_port = query_port,
    .query_qp = query_qp,
    .query_srq = query_srq,
    .reg_mr = reg_mr,
    .req_notify_cq = req_notify_cq,
};

// RDMA_DRIVER_UNKNOWN of <rdma/ib_user_ioctl_verbs.h>: no kernel driver stands behind the descriptor.
constexpr uint32_t kDriverUnknown = 0;

// Without the preload (RTLD_DEEPBIND, an emptied LD_PRELOAD) there is nobody to claim from: the device works,
// and only ibv_create_comp_channel(3) fails, with /dev/full's ENOSPC.
void claim_commands(VerbsContext* context) {
  const auto claim =
      reinterpret_cast<verbena_boundary_claim_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_claim"));
  const verbena_boundary_handler handler = {.write = answer_command, .owner = context};
  if (claim != nullptr) claim(context->base.context.cmd_fd, &handler);
}

void release_commands(VerbsContext* context) {
  const auto release =
      reinterpret_cast<verbena_boundary_release_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_release"));
  if (release != nullptr) release(context->base.context.cmd_fd);
}

}  // namespace

// From _verbs_init_and_alloc_context on, verbs_uninit_context closes both descriptors; if it fails itself, it
// has closed cmd_fd. So nothing here closes any.
verbs_context* alloc_context(ibv_device* device, int cmd_fd, void* /*private_data*/) {
  auto* context = static_cast<VerbsContext*>(
      _verbs_init_and_alloc_context(device, cmd_fd, sizeof(VerbsContext), nullptr, kDriverUnknown));
  if (context == nullptr) return nullptr;

  if (const int error = open_context(device->name, &context->emulated); error != 0) {
    verbs_uninit_context(&context->base);
    return refuse(context, error);
  }
  context->base.context.async_fd = context_async_fd(context->emulated);
  context->base.context.num_comp_vectors = kCompletionVectors;
  verbs_set_ops(&context->base, &kContextOps);
  claim_commands(context);
  return &context->base;
}

void free_context(ibv_context* ibv) {
  VerbsContext* context = to_context(ibv);
  release_commands(context);
  close_context(context->emulated);
  verbs_uninit_context(&context->base);
  free(context);
}

}  // namespace verbena::verbs
