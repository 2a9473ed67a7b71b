// SPDX-License-Identifier: BSD-2-Clause
#pragma once

namespace verbena {

// Attaches the plan of faults (faults/plan.h) that VERBENA_FAULTS holds, if there is one; at most once in a
// process. A plan that cannot be read is an error, said in words, and nothing is injected.
void begin_injection();

}  // namespace verbena
