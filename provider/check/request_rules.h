// SPDX-License-Identifier: BSD-2-Clause
//
// What may be wrong with one request when it is posted. Called with the model's lock held.
#pragma once

#include "check/model.h"

namespace verbena::check {

// The values of a request that the provider takes and that cannot succeed.
void check_send_rules(QueuePair& qp, const ibv_send_wr& wr, Request& request);
void check_receive_rules(const ReceiveQueue& queue, const Object& owner, const Object* pd,
                         const QueuePair* qp, const ibv_recv_wr& wr, Request& request);

// May all that is outstanding complete into `cq`?
void check_room(CompletionQueue& cq, StackId posted);

// The provider has refused `wr` with `error`.
void explain_refused_send(const QueuePair& qp, const ibv_send_wr& wr, int error, StackId posted);
void explain_refused_receive(const Object& owner, const QueuePair* qp, const ReceiveQueue& queue,
                             const ibv_recv_wr& wr, int error, StackId posted);

}  // namespace verbena::check
