// SPDX-License-Identifier: BSD-2-Clause
//
// Address handles (ibv_create_ah(3)).
#include <errno.h>

#include <new>

#include "engine/device_attributes.h"
#include "engine/objects.h"
#include "observe/log.h"

namespace verbena {

int create_ah(Pd* pd, const ibv_ah_attr* attr, Ah** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  const char* why = nullptr;
  if (int error = check_address(attribute_limits(*pd->context->device), *attr, false, &why); error != 0) {
    VERBENA_WARN("ibv_create_ah: %s", why);
    return error;
  }
  if (take_quota(*pd->context, Counted::kAhs, "ibv_create_ah") != 0) return ENOMEM;
  auto* ah = new (std::nothrow) Ah;
  if (ah == nullptr) {
    give_quota(*pd->context, Counted::kAhs);
    return ENOMEM;
  }
  ah->pd = pd;
  ah->attr = *attr;
  pd->users.fetch_add(1, std::memory_order_relaxed);
  *out = ah;
  return 0;
}

int destroy_ah(Ah* ah) {
  ah->pd->users.fetch_sub(1, std::memory_order_release);
  if (!ah->pd->context->process->dead()) give_quota(*ah->pd->context, Counted::kAhs);
  delete ah;
  return 0;
}

}  // namespace verbena
