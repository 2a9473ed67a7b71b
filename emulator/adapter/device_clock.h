// SPDX-License-Identifier: BSD-2-Clause
//
// The clock of every emulated device: the machine's CLOCK_MONOTONIC, in nanoseconds, so that time stamps
// taken in one process can be compared with those taken in another.
#pragma once

#include <cstdint>

#include "adapter/clock.h"

namespace verbena {

inline uint64_t device_clock_ticks() { return static_cast<uint64_t>(now_ns()); }

}  // namespace verbena
