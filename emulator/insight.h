// SPDX-License-Identifier: BSD-2-Clause
//
// What the checker (provider/check) asks the adapter, beside the verbs of emulator.h. Any thread may call it.
#pragma once

#include <cstdint>

#include "emulator.h"

namespace verbena {

uint32_t count_completions(Cq* cq);  // that wait to be polled; 0 in a forked child
bool has_overrun(const Cq* cq);      // a completion has found no room

}  // namespace verbena
