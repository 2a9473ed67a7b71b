// SPDX-License-Identifier: BSD-2-Clause
#pragma once

namespace verbena {

// Attaches the plan of faults (faults/plan.h) that VERBENA_FAULTS holds, if there is one and none is
// attached. A plan that cannot be read is an error, said in words, and nothing is injected. The calls are
// made one at a time.
void begin_injection();

// In a forked child: its time and its counts begin when it opens a device itself, and a thread of the parent
// may have held the lock.
void forget_injection();

}  // namespace verbena
