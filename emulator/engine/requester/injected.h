// SPDX-License-Identifier: BSD-2-Clause
//
// What faults on purpose (faults/injection.h) do to a request that is about to start, and to its
// acknowledgement. What is lost is counted, and observers are told. The caller holds send_lock.
#pragma once

#include "engine/objects/qp.h"
#include "faults/injection.h"

namespace verbena {

// The request has been carried out. True: its acknowledgement is lost, and it stays at the head of the send
// queue.
bool acknowledgement_is_lost(Qp& qp, SendRequest& request, faults::Injection& injection);
// The same where the other end is another node: the acknowledgement of the oldest request has come.
faults::Verdict acknowledgement_verdict(const Qp& qp, const SendRequest& request,
                                        faults::Injection& injection);
faults::Verdict injected_verdict(const Qp& qp, const SendRequest& request, faults::Injection& injection);

}  // namespace verbena
