// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

#include "random/program.h"

namespace conformance::random {

// The program of this seed, for a device with these claims. The model admits each of its steps (model.h).
Program generate(uint64_t seed, const Claims& claims);

}  // namespace conformance::random
