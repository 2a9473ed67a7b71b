// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "fabric/address_range.h"

namespace verbena::wire {

// "192.0.2.0/24", "2001:db8::/32"; without a length it is one address. False: it is none, or has bits behind
// its length, as 192.0.2.1/24 has.
bool read_range(const std::string& text, AddressRange* out);

// As read_range() takes it.
std::string range_text(const AddressRange& range);

}  // namespace verbena::wire
