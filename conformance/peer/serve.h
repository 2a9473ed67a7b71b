// SPDX-License-Identifier: BSD-2-Clause
//
// verbs-conformance --serve: far ends for the tests of another process or machine.
#pragma once

#include "suite/options.h"

namespace conformance {

// Listens until SIGTERM or SIGINT. Each connection is served by a process of its own, which opens the device
// again and ends with its connection. Prints "listening on ADDRESS, port N" when it is ready. Throws
// std::runtime_error when it cannot listen.
void serve(const Options& options);

// Starts a process that serves one connection to this one: another process on this machine, whatever the
// topology. Must be called before the caller opens the device. Returns the caller's descriptor.
int fork_host(const Options& options);

}  // namespace conformance
