// SPDX-License-Identifier: BSD-2-Clause
//
// A CQ of this process, as the process itself appends to it: send completions and flushed requests.
#pragma once

#include "engine/completion/completion_writer.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

// The caller holds send_lock or recv_lock of the queue pair that it appends for (OwnCompletionRing).
inline CqProducer<OwnCompletionRing> own_cq(Cq& cq) {
  Process& process = *cq.process;
  return {cq.ring, *cq.shared, process.self(), process.membership().worker()};
}

}  // namespace verbena
