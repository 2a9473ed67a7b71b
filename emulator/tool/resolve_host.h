// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "wire/net_address.h"

namespace verbena::tool {

// `host`: an address, or a name that the machine resolves. `family`: AF_INET, AF_INET6, or AF_UNSPEC for
// either. False, with why in `problem`: it is neither.
bool resolve_host(const std::string& host, int family, wire::NetAddress* out, std::string* problem);

}  // namespace verbena::tool
