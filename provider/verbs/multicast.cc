// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (const int error = check_handles("ibv_attach_mcast", qp); error != 0) return answer(error);
  return answer(verbena::attach_mcast(to_qp(qp)->emulated, gid, lid));
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (const int error = check_handles("ibv_detach_mcast", qp); error != 0) return answer(error);
  return answer(verbena::detach_mcast(to_qp(qp)->emulated, gid, lid));
}

}  // namespace verbena::verbs
