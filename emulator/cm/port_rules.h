// SPDX-License-Identifier: BSD-2-Clause
//
// Who may have a port beside whom, and who hears a request: the rules of cma.c as pure functions of two ids.
// Where they stand is id_table.h.
#pragma once

#include <cstdint>

#include "cm/id_table.h"

namespace verbena::cm {

// The port space that a bound id's local address lies in.
PortSpace bound_space(const IdFacts& id);

// `mine` asks for a certain port, or to listen on the one it has; `other` has that port. 0: both may.
// EADDRNOTAVAIL: one of them stands for all addresses; EADDRINUSE: they name the same one. `reuse`: mine
// would share it, if other would too and does not listen (cma_check_port).
int conflict(const IdFacts& mine, const IdFacts& other, bool reuse);

// `mine` asks for any port; may it be the one that `other` has? When what they talk to, or from, tells them
// apart (cma_port_is_unique).
bool may_share_chosen_port(const IdFacts& mine, const IdFacts& other);

// How well a request to `destination` on `device` (kAnyDevice: unknown) fits a listener that has its port and
// space: 0 not at all, 1 through a wildcard of another family, 2 through a wildcard or loopback address of
// its own, 3 it is that address (cma_match_private_data).
int listener_rank(const IdFacts& listener, const Address& destination, uint32_t device);

}  // namespace verbena::cm
