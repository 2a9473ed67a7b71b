// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

int memcpy_to_dm(ibv_dm* dm, uint64_t offset, const void* from, size_t length) {
  return answer(copy_to_dm(to_dm(dm)->emulated, offset, from, length));
}

int memcpy_from_dm(void* to, ibv_dm* dm, uint64_t offset, size_t length) {
  return answer(copy_from_dm(to, to_dm(dm)->emulated, offset, length));
}

}  // namespace

ibv_dm* wrap_dm(ibv_context* context, Dm* emulated) {
  auto* dm = allocate<VerbsDm>();
  if (dm == nullptr) return nullptr;
  dm->emulated = emulated;
  dm->base.context = context;
  dm->base.memcpy_to_dm = memcpy_to_dm;
  dm->base.memcpy_from_dm = memcpy_from_dm;
  dm->base.comp_mask = IBV_DM_MASK_HANDLE;
  dm->base.handle = dm_handle(emulated);
  return &dm->base;
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  Dm* emulated = nullptr;
  if (const int error = verbena::alloc_dm(to_context(context)->emulated, attr, &emulated); error != 0)
    return refuse(error);
  ibv_dm* dm = wrap_dm(context, emulated);
  if (dm == nullptr) verbena::free_dm(emulated);
  return dm;
}

int free_dm(ibv_dm* ibv) {
  if (const int error = check_end("ibv_free_dm", ibv); error != 0) return answer(error);
  VerbsDm* dm = to_dm(ibv);
  if (const int error = verbena::free_dm(dm->emulated); error != 0) return answer(error);
  free(dm);
  return 0;
}

}  // namespace verbena::verbs
