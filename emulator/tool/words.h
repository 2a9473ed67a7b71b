// SPDX-License-Identifier: BSD-2-Clause
//
// Names for the numbers of <infiniband/verbs.h>, in the specification's spelling. An unknown number is
// printed as such.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::tool {

std::string qp_type_word(uint32_t type);
std::string qp_state_word(uint32_t state);
std::string armed_word(uint32_t armed);
std::vector<std::string> access_words(uint32_t access);

}  // namespace verbena::tool
