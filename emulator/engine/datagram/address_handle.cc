// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/address_handle.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/rules/device_attributes.h"
#include "observe/log.h"

namespace verbena {

int create_ah(Pd* pd, const ibv_ah_attr* attr, Ah** out) {
  if (int error = usable(*pd->context); error != 0) return error;
  const DeviceDescription& device = *pd->context->device;
  const char* why = nullptr;
  uint64_t value = 0;
  if (int error = check_address(attribute_limits(device), *attr, false, &why, &value); error != 0) {
    VERBENA_WARN(ah_attributes, "ibv_create_ah: PD %u: %s: it is %llu", pd->handle, why,
                 static_cast<unsigned long long>(value));
    return error;
  }
  if (int error = take_quota(*pd->context, Counted::kAhs, "ibv_create_ah"); error != 0) return error;
  auto* ah = new (std::nothrow) Ah;
  if (ah == nullptr) {
    give_quota(*pd->context, Counted::kAhs);
    return ENOMEM;
  }
  ah->pd = pd;
  ah->attr = *attr;
  if (attr->is_global != 0) {
    ah->header = DatagramHeader::of(device.port(attr->port_num).gids[attr->grh.sgid_index], attr->grh);
    ah->multicast = is_multicast(attr->grh.dgid);
  }
  pd->users.fetch_add(1, std::memory_order_relaxed);
  *out = ah;
  return 0;
}

int destroy_ah(Ah* ah) {
  if (!ah->pd->context->process->dead()) give_quota(*ah->pd->context, Counted::kAhs);
  ah->pd->users.fetch_sub(1, std::memory_order_release);
  delete ah;
  return 0;
}

}  // namespace verbena
