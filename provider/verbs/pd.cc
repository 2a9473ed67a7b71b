// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/domain.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

ibv_pd* alloc_pd(ibv_context* context) {
  auto* pd = allocate<VerbsPd>();
  if (pd == nullptr) return nullptr;
  if (const int error = verbena::alloc_pd(to_context(context)->emulated, &pd->emulated); error != 0) {
    return refuse(pd, error);
  }
  pd->base.context = context;
  pd->base.handle = pd_handle(pd->emulated);
  return &pd->base;
}

int dealloc_pd(ibv_pd* ibv) {
  if (const int error = check_end("ibv_dealloc_pd", ibv); error != 0) return answer(error);
  VerbsPd* pd = to_pd(ibv);
  if (pd->users.load(std::memory_order_acquire) != 0) {
    log_busy_pd(pd->emulated, pd->parent_domains.load(std::memory_order_relaxed));
    return answer(EBUSY);
  }
  if (pd->parent != nullptr) return dealloc_parent_domain(pd);
  if (const int error = verbena::dealloc_pd(pd->emulated); error != 0) return answer(error);
  free(pd);
  return 0;
}

}  // namespace verbena::verbs
