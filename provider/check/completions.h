// SPDX-License-Identifier: BSD-2-Clause
//
// Called with the model's lock held.
#pragma once

#include "check/model.h"

namespace verbena::check {

// The queue was polled.
void note_poll(CompletionQueue& cq, bool found_nothing, const Stack& stack);

void report_overrun(const CompletionQueue& cq);

}  // namespace verbena::check
