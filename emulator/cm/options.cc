// SPDX-License-Identifier: BSD-2-Clause
//
// Options (cma.c: rdma_set_service_type, rdma_set_reuseaddr, rdma_set_afonly, rdma_set_ack_timeout).
#include <errno.h>

#include "cm/id.h"

namespace verbena::cm {
namespace {

void set_flag(Id& id, uint8_t flag, bool on) {
  id.flags = static_cast<uint8_t>(on ? id.flags | flag : id.flags & ~flag);
  id.publish();
}

}  // namespace

int set_service_type(Id* id, uint8_t tos) {
  Service::Guard guard(id->service);
  id->service_type = tos;
  return 0;
}

int set_reuse_address(Id* id, bool reuse) {
  Service::Guard guard(id->service);
  if (!(reuse && id->stage != Stage::kListen) && id->stage != Stage::kIdle) return EINVAL;
  set_flag(*id, kIdReuse, reuse);
  return 0;
}

int set_family_only(Id* id, bool only) {
  Service::Guard guard(id->service);
  if (id->stage != Stage::kIdle && id->stage != Stage::kAddressBound) return EINVAL;
  id->family_only_set = true;
  set_flag(*id, kIdFamilyOnly, only);
  return 0;
}

int set_ack_timeout(Id* id, uint8_t timeout) {
  if (id->qp_type != IBV_QPT_RC && id->qp_type != IBV_QPT_XRC_SEND) return EINVAL;
  Service::Guard guard(id->service);
  id->ack_timeout = timeout;
  id->ack_timeout_set = true;
  return 0;
}

}  // namespace verbena::cm
