// SPDX-License-Identifier: BSD-2-Clause
//
// The program's handling of SIGBUS, which the emulator has a handler for once it has mapped memory of a peer
// (fabric/guarded_copy.h). For the hooks of the program's calls (provider/boundary/watch.h).
#pragma once

#include <signal.h>

namespace verbena {

// sigaction(2) of the program for SIGBUS: 0, or -1 and errno.
int exchange_sigbus_action(const struct sigaction* action, struct sigaction* former);

// The calling thread may have changed its signal mask.
void signal_mask_changed();

}  // namespace verbena
