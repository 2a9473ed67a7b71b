// SPDX-License-Identifier: BSD-2-Clause
//
// The receive queue of a UD queue pair that was created without an SRQ: a shared queue of its own (Qp::srq,
// with is_of_program() false). Sending is in datagram.h.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// Creates the parts that only UD queue pairs have: the receive queue, unless the QP uses an SRQ of the
// program, and the table of destinations. Rounds qp.cap up. ENOMEM.
int make_datagram_parts(Qp& qp);
void unmake_datagram_parts(Qp& qp);  // no requester uses it any more

// As post_recv.
int post_datagram_receives(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

}  // namespace verbena
