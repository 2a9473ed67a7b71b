// SPDX-License-Identifier: BSD-2-Clause
//
// The identity of a process over time: its number may be another's later. Read from /proc (proc(5)).
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace verbena {

// A process of this machine since its start, in one word; never 0 for a living process. 0: there is no such
// process, or it has ended (a zombie).
uint64_t identity_of_process(pid_t pid);

// True: the process lives. In doubt (it is in another pid namespace, where this process cannot look): true.
bool process_lives(uint64_t identity);

// In this process's pid namespace. 0: in another one.
pid_t pid_of_identity(uint64_t identity);

// Changes with every start of the machine. 0: unknown.
uint64_t this_boot();

}  // namespace verbena
