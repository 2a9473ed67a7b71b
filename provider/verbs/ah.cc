// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (const int error = check_handles("ibv_create_ah", pd); error != 0) return refuse(error);
  auto* ah = allocate<VerbsAh>();
  if (ah == nullptr) return nullptr;
  if (const int error = verbena::create_ah(to_pd(pd)->emulated, attr, &ah->emulated); error != 0) {
    return refuse(ah, error);
  }
  ah->base.handle = kAhHandle;
  return &ah->base;  // ibv_create_ah(3) sets context and pd
}

int destroy_ah(ibv_ah* ibv) {
  if (const int error = check_end("ibv_destroy_ah", ibv); error != 0) return answer(error);
  VerbsAh* ah = to_ah(ibv);
  if (const int error = verbena::destroy_ah(ah->emulated); error != 0) return answer(error);
  free(ah);
  return 0;
}

}  // namespace verbena::verbs
