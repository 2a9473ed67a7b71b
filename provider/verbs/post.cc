// SPDX-License-Identifier: BSD-2-Clause
//
// The data path. libibverbs calls these functions through the table of the context. Each makes one call and
// does not change errno (ibv_post_send(3) only returns it).
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  const int error = verbena::post_send(to_qp(qp)->emulated, wr, bad_wr);
  return error;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const int error = verbena::post_recv(to_qp(qp)->emulated, wr, bad_wr);
  return error;
}

}  // namespace verbena::verbs
