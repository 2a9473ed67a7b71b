// SPDX-License-Identifier: BSD-2-Clause
//
// The clock of every emulated device: the machine's CLOCK_MONOTONIC, in nanoseconds. Time stamps of different
// processes can therefore be compared.
#pragma once

#include <cstdint>

#include "adapter/clock.h"

namespace verbena {

inline uint64_t device_clock_ticks() { return static_cast<uint64_t>(now_ns()); }

}  // namespace verbena
