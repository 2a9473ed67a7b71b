// SPDX-License-Identifier: BSD-2-Clause
//
// The receiving half of a UD queue pair that was created without an SRQ: a queue with many requesters that is
// its own (Qp::srq, which is not is_of_program()). What is sent to it stands in datagram.h.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// Makes what a UD queue pair has beside the others': its queue, unless it has the program's SRQ, and what its
// sender remembers. qp.cap is what was asked for, rounded up. ENOMEM.
int make_datagram_parts(Qp& qp);
void unmake_datagram_parts(Qp& qp);  // no requester can be at it any more

// As post_recv.
int post_datagram_receives(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

}  // namespace verbena
