// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return answer(verbena::attach_mcast(to_qp(qp)->emulated, gid, lid));
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return answer(verbena::detach_mcast(to_qp(qp)->emulated, gid, lid));
}

}  // namespace verbena::verbs
