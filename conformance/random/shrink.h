// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <functional>

#include "random/program.h"

namespace conformance::random {

// The least program, of those found by taking steps, requests and elements away, that `still_deviates`. It is
// asked at most `most` times, once about each program, and only about those whose steps the model admits.
Program shrink(Program program, const Claims& claims, int most,
               const std::function<bool(const Program&)>& still_deviates);

}  // namespace conformance::random
