// SPDX-License-Identifier: BSD-2-Clause
//
// Posting a request through the send queue, which is open to requests of every kind and to every state.
#pragma once

#include <infiniband/verbs.h>

namespace verbena {

struct Qp;
struct SendRequest;

// Posts one request: checks it, and carries it out within the call or keeps it in the send queue. In SQE and
// ERR it is flushed. errno values as post_send (emulator.h). The caller holds send_lock, and no hazard guard.
int post_to_queue(Qp& qp, const ibv_send_wr& wr);

// Places of the send queue that the program's requests take. The caller holds send_lock.
uint64_t places_in_use(const Qp& qp);

// Keeps `request` in the send queue, in the slot of its number: it, its SGEs and its inline data are copied. The
// caller holds send_lock.
void keep_request(Qp& qp, const SendRequest& request);

}  // namespace verbena
