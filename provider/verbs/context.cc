// SPDX-License-Identifier: BSD-2-Clause
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

#include "boundary/claim.h"
#include "boundary/watch.h"
#include "no_cancellation.h"
#include "observe/log.h"
#include "rdma_core/layout.h"
#include "rdma_core/libibverbs.h"
#include "program_memory.h"
#include "sigbus.h"
#include "verbs/checker.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// `Verb`, during which a cancellation has no effect.
template <auto Verb>
struct Uncancelled;
template <typename Result, typename... Arguments, Result (*Verb)(Arguments...)>
struct Uncancelled<Verb> {
  static Result call(Arguments... arguments) {
    const NoCancellation guard;
    return Verb(arguments...);
  }
};
template <auto Verb>
constexpr auto uncancelled = Uncancelled<Verb>::call;

// All supported operations. The others return EOPNOTSUPP (libibverbs/dummy_ops.c).
const rdma_core::ContextOps kContextOps = {
    .advise_mr = uncancelled<advise_mr>,
    .alloc_dm = uncancelled<alloc_dm>,
    .alloc_mw = uncancelled<alloc_mw>,
    .alloc_null_mr = uncancelled<alloc_null_mr>,
    .alloc_parent_domain = uncancelled<alloc_parent_domain>,
    .alloc_pd = uncancelled<alloc_pd>,
    .alloc_td = uncancelled<alloc_td>,
    .attach_counters_point_flow = uncancelled<attach_counters_point_flow>,
    .attach_mcast = uncancelled<attach_mcast>,
    .bind_mw = uncancelled<bind_mw>,
    .close_xrcd = uncancelled<close_xrcd>,
    .cq_event = uncancelled<cq_event>,
    .create_ah = uncancelled<create_ah>,
    .create_counters = uncancelled<create_counters>,
    .create_cq = uncancelled<create_cq>,
    .create_cq_ex = uncancelled<create_cq_ex>,
    .create_flow = uncancelled<create_flow>,
    .create_qp = uncancelled<create_qp>,
    .create_qp_ex = uncancelled<create_qp_ex>,
    .create_rwq_ind_table = uncancelled<create_rwq_ind_table>,
    .create_srq = uncancelled<create_srq>,
    .create_srq_ex = uncancelled<create_srq_ex>,
    .create_wq = uncancelled<create_wq>,
    .dealloc_mw = uncancelled<dealloc_mw>,
    .dealloc_pd = uncancelled<dealloc_pd>,
    .dealloc_td = uncancelled<dealloc_td>,
    .dereg_mr = uncancelled<dereg_mr>,
    .destroy_ah = uncancelled<destroy_ah>,
    .destroy_counters = uncancelled<destroy_counters>,
    .destroy_cq = uncancelled<destroy_cq>,
    .destroy_flow = uncancelled<destroy_flow>,
    .destroy_qp = uncancelled<destroy_qp>,
    .destroy_rwq_ind_table = uncancelled<destroy_rwq_ind_table>,
    .destroy_srq = uncancelled<destroy_srq>,
    .destroy_wq = uncancelled<destroy_wq>,
    .detach_mcast = uncancelled<detach_mcast>,
    .free_context = uncancelled<free_context>,
    .free_dm = uncancelled<free_dm>,
    .get_srq_num = uncancelled<get_srq_num>,
    .import_dm = uncancelled<import_dm>,
    .import_mr = uncancelled<import_mr>,
    .import_pd = uncancelled<import_pd>,
    .modify_cq = uncancelled<modify_cq>,
    .modify_qp = uncancelled<modify_qp>,
    .modify_qp_rate_limit = uncancelled<modify_qp_rate_limit>,
    .modify_srq = uncancelled<modify_srq>,
    .modify_wq = uncancelled<modify_wq>,
    .open_qp = uncancelled<open_qp>,
    .open_xrcd = uncancelled<open_xrcd>,
    .poll_cq = poll_cq,
    .post_recv = post_recv,
    .post_send = post_send,
    .post_srq_ops = post_srq_ops,
    .post_srq_recv = post_srq_recv,
    .query_device = uncancelled<query_device>,
    .query_device_ex = uncancelled<query_device_ex>,
    .query_ece = uncancelled<query_ece>,
    .query_port = uncancelled<query_port>,
    .query_port_speed = uncancelled<query_port_speed>,
    .query_qp = uncancelled<query_qp>,
    .query_rt_values = uncancelled<query_rt_values>,
    .query_srq = uncancelled<query_srq>,
    .read_counters = uncancelled<read_counters>,
    .reg_dm_mr = uncancelled<reg_dm_mr>,
    .reg_dmabuf_mr = uncancelled<reg_dmabuf_mr>,
    .reg_mr = uncancelled<reg_mr>,
    .reg_mr_ex = uncancelled<reg_mr_ex>,
    .req_notify_cq = req_notify_cq,
    .rereg_mr = uncancelled<rereg_mr>,
    .resize_cq = uncancelled<resize_cq>,
    .set_ece = uncancelled<set_ece>,
    .unimport_dm = uncancelled<unimport_dm>,
    .unimport_mr = uncancelled<unimport_mr>,
    .unimport_pd = uncancelled<unimport_pd>,
};

// RDMA_DRIVER_UNKNOWN of <rdma/ib_user_ioctl_verbs.h>: the descriptor has no kernel driver.
constexpr uint32_t kDriverUnknown = 0;

// Without the preload (RTLD_DEEPBIND, an emptied LD_PRELOAD) the descriptor cannot be claimed. The device
// works; only ibv_create_comp_channel(3) fails, with the ENOSPC of /dev/full.
void claim_commands(VerbsContext* context) {
  const auto claim =
      reinterpret_cast<verbena_boundary_claim_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_claim"));
  const verbena_boundary_handler handler = {
      .write = answer_command, .owner = context, .control = answer_control, .resume = nullptr};
  if (claim != nullptr) claim(context->base.cmd_fd, &handler);
}

// Shared memory of the program can be reached by copy as far as the preload sees the calls that matter.
void watch_program() {
  static const verbena_boundary_watcher kWatcher = {.sigbus_action = exchange_sigbus_action,
                                                    .signal_mask_changed = signal_mask_changed,
                                                    .memory_changes = memory_changes,
                                                    .memory_changed = memory_changed,
                                                    .memory_leaves = memory_leaves};
  static const auto was_shared =
      reinterpret_cast<verbena_boundary_was_shared_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_was_shared"));
  static const auto watch =
      reinterpret_cast<verbena_boundary_watch_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_watch"));
  if (was_shared == nullptr || watch == nullptr) return;
  watch(&kWatcher);
  set_shared_memory_hint([](uint64_t address, uint64_t) { return was_shared(address) != 0; });
  static const auto watch_memory = reinterpret_cast<verbena_boundary_watch_memory_fn>(
      dlsym(RTLD_DEFAULT, "verbena_boundary_watch_memory"));
  static const auto has_advised = reinterpret_cast<verbena_boundary_has_advised_fn>(
      dlsym(RTLD_DEFAULT, "verbena_boundary_has_advised"));
  if (watch_memory != nullptr && has_advised != nullptr)
    set_program_memory({watch_memory, [] { return has_advised() != 0; }});
}

void release_commands(VerbsContext* context) {
  const auto release =
      reinterpret_cast<verbena_boundary_release_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_release"));
  if (release != nullptr) release(context->base.cmd_fd);
}

// libibverbs' part of `context`.
verbs_context* part_of_libibverbs(VerbsContext* context) {
  return reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(&context->base) -
                                          rdma_core::installed_layout()->context_offset);
}

// From init_and_alloc_context on, uninit_context closes both descriptors. If the former fails, it has closed
// cmd_fd. So no code here closes them.
template <typename Open>
VerbsContext* make_context(ibv_device* device, int cmd_fd, Open open) {
  const rdma_core::Layout& layout = *rdma_core::installed_layout();
  const rdma_core::Libibverbs& library = rdma_core::libibverbs();
  const size_t place = offsetof(VerbsContext, base) - layout.context_offset;
  auto* context = static_cast<VerbsContext*>(library.init_and_alloc_context(
      device, cmd_fd, sizeof(VerbsContext), reinterpret_cast<void*>(place), kDriverUnknown));
  if (context == nullptr) return nullptr;

  if (const int error = open(&context->emulated); error != 0) {
    library.uninit_context(part_of_libibverbs(context));
    return refuse(context, error);
  }
  context->base.num_comp_vectors = kCompletionVectors;
  static const auto operations = rdma_core::operations_of(layout, checked(kContextOps));
  library.set_ops(part_of_libibverbs(context), operations.data());
  claim_commands(context);
  watch_program();
  tell_checker(&context->base);
  return context;
}

std::atomic<VerbsContext*> left{nullptr};  // leak checkers find them here

// The program still has objects to destroy, and libibverbs reads their context first: the context stays,
// without descriptors.
void keep(VerbsContext* context) {
  ibv_context& ibv = context->base;
  for (int* descriptor : {&ibv.cmd_fd, &ibv.async_fd})
    if (*descriptor != -1) close(std::exchange(*descriptor, -1));
  context->next_left = left.load(std::memory_order_relaxed);
  while (!left.compare_exchange_weak(context->next_left, context, std::memory_order_release)) {
  }
}

// The context whose command descriptor `cmd_fd` is a copy of. nullptr: no context of this process.
VerbsContext* find_original(int cmd_fd) {
  const auto find = reinterpret_cast<verbena_boundary_find_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_find"));
  verbena_boundary_handler handler = {
      .write = nullptr, .owner = nullptr, .control = nullptr, .resume = nullptr};
  if (find == nullptr || find(cmd_fd, &handler) != 0 || handler.write != answer_command) return nullptr;
  return static_cast<VerbsContext*>(handler.owner);
}

}  // namespace

verbs_context* alloc_context(ibv_device* device, int cmd_fd, void* /*private_data*/) {
  const NoCancellation guard;
  VerbsContext* context =
      make_context(device, cmd_fd, [device](Context** out) { return open_context(device->name, out); });
  if (context == nullptr) return nullptr;
  context->base.async_fd = context_async_fd(context->emulated);
  return part_of_libibverbs(context);
}

// libibverbs chooses the device by the number of the descriptor, which all our devices share: the claim knows
// the device. libibverbs asks for the asynchronous descriptor later (answer_control). A descriptor of a
// context of another process is refused: this process has no access to the memory of that one.
verbs_context* import_context(ibv_device* /*device*/, int cmd_fd) {
  const NoCancellation guard;
  const VerbsContext* original = find_original(cmd_fd);
  if (original == nullptr) {
    VERBENA_WARN(other_context, "ibv_import_device: descriptor %d is of no context of this process", cmd_fd);
    return refuse(EOPNOTSUPP);
  }
  VerbsContext* context = make_context(original->base.device, cmd_fd, [original](Context** out) {
    return verbena::import_context(original->emulated, out);
  });
  return context != nullptr ? part_of_libibverbs(context) : nullptr;
}

void free_context(ibv_context* ibv) {
  VerbsContext* context = to_context(ibv);
  release_commands(context);
  // An import that failed halfway has no asynchronous descriptor.
  if (ibv->async_fd == -1) close(context_async_fd(context->emulated));
  free_unimported(context);
  if (close_context(context->emulated)) return keep(context);
  rdma_core::libibverbs().uninit_context(part_of_libibverbs(context));
  free(context);
}

}  // namespace verbena::verbs
