// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/checker.h"

#include <dlfcn.h>

#include "check/layer.h"
#include "insight.h"
#include "observe/log_listener.h"
#include "verbs/cq.h"
#include "verbs/objects.h"
#include "verbs/wr.h"

namespace verbena::verbs {
namespace {

uint32_t waiting(ibv_cq* cq) { return count_completions(to_cq(cq)->emulated); }
bool overrun(ibv_cq* cq) { return has_overrun(to_cq(cq)->emulated); }
bool flushing(ibv_qp* qp) { return is_flushing(to_qp(qp)->emulated); }
uint32_t rnr_naks(ibv_qp* qp) { return count_rnr_naks(to_qp(qp)->emulated); }
bool peer(ibv_qp* qp, PeerAttributes* out) { return find_peer_attributes(to_qp(qp)->emulated, out); }
bool target(ibv_qp* qp, uint64_t address, uint32_t rkey, void* to, uint32_t length) {
  return read_target(to_qp(qp)->emulated, address, rkey, to, length);
}

const verbena_check_layer* layer(const rdma_core::ContextOps& own) {
  static const verbena_check_layer* const attached = [&own]() -> const verbena_check_layer* {
    const auto attach = reinterpret_cast<verbena_check_attach_fn>(dlsym(RTLD_DEFAULT, VERBENA_CHECK_ATTACH));
    const verbena_check_provider provider = {.operations = &own,
                                             .open_batch = open_batch,
                                             .current = current_completion,
                                             .waiting = waiting,
                                             .has_overrun = overrun,
                                             .is_flushing = flushing,
                                             .rnr_naks = rnr_naks,
                                             .find_peer = peer,
                                             .read_target = target,
                                             .listen = set_log_listener};
    return attach != nullptr ? attach(&provider) : nullptr;
  }();
  return attached;
}

void (*opened)(ibv_context*) = nullptr;

}  // namespace

const rdma_core::ContextOps& checked(const rdma_core::ContextOps& own) {
  const verbena_check_layer* const checker = layer(own);
  if (checker == nullptr) return own;
  opened = checker->opened;
  return *checker->operations;
}

void tell_checker(ibv_context* context) {
  if (opened != nullptr) opened(context);
}

}  // namespace verbena::verbs
