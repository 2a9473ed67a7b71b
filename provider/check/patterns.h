// SPDX-License-Identifier: BSD-2-Clause
//
// Receive buffers that the program touches before their completion. Only with --enable
// receive-buffer-written: then the buffer is filled with a pattern when it is posted. What is read too early
// is the pattern. What was written too early is found in the bytes behind the message.
#pragma once

#include "check/model.h"

namespace verbena::check {

// A receive that is about to be posted. Nothing happens if another outstanding request uses the bytes, or if
// peers may write to them. With the lock held, as below.
void fill_pattern(const ibv_context* context, Request& receive);

// The receive has completed with success, and `length` bytes of it were written.
void check_pattern(const QueuePair& qp, const Request& receive, uint64_t length, const Stack& polling);

}  // namespace verbena::check
