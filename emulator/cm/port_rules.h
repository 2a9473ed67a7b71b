// SPDX-License-Identifier: BSD-2-Clause
//
// Which ids may share a port, and which listener gets a request: the rules of cma.c as pure functions of two
// ids. id_table.h applies them.
#pragma once

#include <cstdint>

#include "cm/id_table.h"

namespace verbena::cm {

// The port space of a bound id's local address.
PortSpace bound_space(const IdFacts& id);

// `mine` requests a certain port, or requests to listen on its port. `other` has that port. 0: no conflict.
// EADDRNOTAVAIL: one of them stands for all addresses. EADDRINUSE: they name the same address. `reuse`:
// `mine` shares the port if `other` does and does not listen (cma_check_port).
int conflict(const IdFacts& mine, const IdFacts& other, bool reuse);

// `mine` requests any port. True: it may get the port of `other`, because their remote or local addresses
// distinguish them (cma_port_is_unique).
bool may_share_chosen_port(const IdFacts& mine, const IdFacts& other);

// How well a listener with the right port and space fits a request to `destination` on `device` (kAnyDevice:
// unknown; cma_match_private_data):
// - 0: not at all.
// - 1: through a wildcard of another family.
// - 2: through a wildcard or loopback address of its own family.
// - 3: its address is the destination.
int listener_rank(const IdFacts& listener, const Address& destination, uint32_t device);

}  // namespace verbena::cm
