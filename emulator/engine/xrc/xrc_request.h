// SPDX-License-Identifier: BSD-2-Clause
//
// The request by which a process has the owner of an XRC_RECV queue pair modify it (fabric/control_rpc.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <type_traits>

#include "engine/queue_pair/modify_qp.h"
#include "fabric/control_rpc.h"

namespace verbena {

// What a process asks of the owner.
struct XrcModifyRequest {
  static constexpr uint32_t kModify = 0x4d'43'52'58;  // "XRCM"
  uint32_t what;
  uint32_t qpn;
  uint32_t index;
  uint32_t incarnation;
  int32_t mask;
  PeerQp peer;
  ibv_qp_attr attr;
};
struct XrcModifyReply {
  int32_t error;  // ESTALE: it is not here any more
};
static_assert(sizeof(XrcModifyRequest) <= kMaxMessage && std::is_trivially_copyable_v<XrcModifyRequest>);

}  // namespace verbena
