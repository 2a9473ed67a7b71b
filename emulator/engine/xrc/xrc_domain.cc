// SPDX-License-Identifier: BSD-2-Clause
//
// XRC domains (ibv_open_xrcd(3), ibv_close_xrcd(3)).
#include <new>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/xrcd.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {

int open_xrcd(Context* context, int fd, int flags, Xrcd** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  if (int error = take_quota(*context, Counted::kXrcds, "ibv_open_xrcd"); error != 0) return error;
  auto* xrcd = new (std::nothrow) Xrcd;
  if (xrcd == nullptr) {
    give_quota(*context, Counted::kXrcds);
    return ENOMEM;
  }
  xrcd->context = context;
  const NodeMembership& membership = process.membership();
  const int error = open_xrc_domain(process.directory(), membership.slot(), membership.generation(),
                                    context->device_index, fd, flags, &xrcd->entry, &xrcd->number);
  if (error != 0) {
    VERBENA_WARN(xrc_domain, "ibv_open_xrcd: descriptor %d, oflags 0x%x: errno %d", fd, flags, error);
    give_quota(*context, Counted::kXrcds);
    delete xrcd;
    return error;
  }
  *out = xrcd;
  return 0;
}

int close_xrcd(Xrcd* xrcd) {
  Process& process = *xrcd->context->process;
  if (!process.dead()) {
    if (const uint32_t users = xrcd->users.load(std::memory_order_acquire); users != 0) {
      VERBENA_WARN(object_in_use, "ibv_close_xrcd: %u SRQs and queue pairs still belong to it", users);
      return EBUSY;
    }
    close_xrc_domain(process.directory(), xrcd->entry);
    give_quota(*xrcd->context, Counted::kXrcds);
  }
  delete xrcd;
  return 0;
}

}  // namespace verbena
