// SPDX-License-Identifier: BSD-2-Clause
//
// Completions of the send queue. The caller holds send_lock.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// What the completion of a request says that has succeeded or failed with `error`. The opcode is a valid one.
struct SendCompletion {
  uint64_t wr_id;
  uint64_t number;
  ibv_wr_opcode opcode;
  uint32_t length;
  VendorError error = VendorError::none;
};

// Appends it, signaled or not.
void append_send_completion(Qp& qp, const SendCompletion& completion);

// Appends the completion of `request`, if it is signaled or has failed.
void complete_send(Qp& qp, const SendRequest& request, VendorError error);

}  // namespace verbena
