// SPDX-License-Identifier: BSD-2-Clause
//
// Memory windows (ibv_alloc_mw(3)). The requests that bind them: requester/local_requests.h.
#include <errno.h>

#include <algorithm>
#include <new>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/rules/device_attributes.h"
#include "engine/rules/program_enum.h"
#include "observe/log.h"

namespace verbena {

int alloc_mw(Pd* pd, ibv_mw_type type, Mw** out) {
  Process& process = *pd->context->process;
  if (int error = usable(*pd->context); error != 0) return error;
  const unsigned number = number_in(type);
  if (number != IBV_MW_TYPE_1 && number != IBV_MW_TYPE_2) {
    VERBENA_WARN(mw_type, "ibv_alloc_mw: type %u: there are 1 and 2", number);
    return EINVAL;
  }
  if (int error = take_quota(*pd->context, Counted::kMws, "ibv_alloc_mw"); error != 0) return error;
  auto* mw = new (std::nothrow) Mw;
  if (mw == nullptr) {
    give_quota(*pd->context, Counted::kMws);
    return ENOMEM;
  }
  mw->process = &process;
  mw->file = pd->context->file;
  mw->device = pd->context->device_index;
  mw->pd_users = pd->count;
  mw->pd = pd->handle;
  mw->kind = number == IBV_MW_TYPE_1 ? KeyKind::kWindow1 : KeyKind::kWindow2;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  if (int error = process.memory().add_window(process.segment(), mw->kind, mw->pd, &mw->rkey); error != 0) {
    give_quota(*pd->context, Counted::kMws);
    delete mw;
    return error;
  }
  objects.mws.emplace(mw_handle(mw), mw);
  mw->pd_users->fetch_add(1, std::memory_order_relaxed);
  *out = mw;
  return 0;
}

int dealloc_mw(Mw* mw) {
  Process& process = *mw->process;
  if (process.dead()) return 0;
  MemoryObjects& objects = process.memory_objects();
  {
    std::lock_guard lock(objects.mutex);
    find_window(process.view(), mw->rkey)->valid.store(0, std::memory_order_release);
    if (mw->region != nullptr) std::erase(mw->region->windows, mw);
    objects.mws.erase(mw_handle(mw));
  }
  process.wait_for_hazards({"ibv_dealloc_mw", "rkey", mw->rkey, true});
  process.memory().recycle(process.segment(), mw->rkey);
  give_quota(process, mw->device, Counted::kMws);
  mw->pd_users->fetch_sub(1, std::memory_order_release);
  delete mw;
  return 0;
}

uint32_t mw_rkey(const Mw* mw) { return mw->rkey; }
uint32_t mw_handle(const Mw* mw) { return MemoryKey::unpack(mw->rkey).index; }
bool is_of(const Mw* mw, const Context* context) { return mw->file == context->file; }

}  // namespace verbena
