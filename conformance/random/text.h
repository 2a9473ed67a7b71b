// SPDX-License-Identifier: BSD-2-Clause
//
// Programs in words.
#pragma once

#include <string>

#include "random/program.h"

namespace conformance::random {

std::string end_text(EndIndex end);  // "qp 1b"
std::string text(const Step& step);
std::string text(const Program& program);  // with those objects that its steps use

std::string hex(uint64_t number);

}  // namespace conformance::random
