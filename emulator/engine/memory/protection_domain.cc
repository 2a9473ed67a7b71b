// SPDX-License-Identifier: BSD-2-Clause
//
// Protection domains (ibv_alloc_pd(3), ibv_import_pd(3)).
#include <errno.h>

#include <new>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "observe/log.h"

namespace verbena {

int alloc_pd(Context* context, Pd** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  if (take_quota(*context, Counted::kPds, "ibv_alloc_pd") != 0) return ENOMEM;
  static std::atomic<uint32_t> next_handle{1};
  auto* pd = new (std::nothrow) Pd;
  if (pd == nullptr) {
    give_quota(*context, Counted::kPds);
    return ENOMEM;
  }
  pd->context = context;
  pd->handle = next_handle.fetch_add(1, std::memory_order_relaxed);
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  objects.domains.emplace(pd->handle, MemoryObjects::Domain{context->file, pd->count});
  *out = pd;
  return 0;
}

int dealloc_pd(Pd* pd) {
  Process& process = *pd->context->process;
  if (!process.dead()) {
    MemoryObjects& objects = process.memory_objects();
    std::lock_guard lock(objects.mutex);
    if (pd->users.load(std::memory_order_acquire) != 0) {
      VERBENA_WARN("ibv_dealloc_pd: PD %u: %u objects still belong to it", pd->handle, pd->users.load());
      return EBUSY;
    }
    // Another context that shares the domain may have been first (in the kernel: no such object).
    if (objects.domains.erase(pd->handle) == 0) return ENOENT;
    give_quota(*pd->context, Counted::kPds);
  } else if (pd->users.load(std::memory_order_acquire) != 0) {
    return 0;  // objects that are destroyed later still use it
  }
  delete pd;
  return 0;
}

uint32_t pd_handle(const Pd* pd) { return pd->handle; }

int import_pd(Context* context, uint32_t handle, Pd** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  const auto found = objects.domains.find(handle);
  if (found == objects.domains.end() || found->second.file != context->file) {
    VERBENA_WARN("ibv_import_pd: handle %u: the context's command descriptor knows no such protection domain",
                 handle);
    return ENOENT;
  }
  auto* pd = new (std::nothrow) Pd{context, handle, found->second.count};
  if (pd == nullptr) return ENOMEM;
  *out = pd;
  return 0;
}

void unimport_pd(Pd* pd) { delete pd; }

}  // namespace verbena
