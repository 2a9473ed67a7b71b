// SPDX-License-Identifier: BSD-2-Clause
//
// Running the user's program.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tool/environment.h"

namespace verbena::tool {

// Exit statuses of a program that cannot be run: POSIX shell command language, 2.8.2.
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

// Becomes the program (execvp(3)). Returns only if that fails, after a message: the exit status that a shell
// would have, 127 if there is no such program, else 126.
int become(const std::vector<std::string>& program);

// Starts it as a child, with these variables and this signal mask. `to_stderr`: what it prints goes to
// standard error, as standard output is taken. -1 and errno.
pid_t start(const std::vector<std::string>& program, const std::vector<Variable>& environment, bool to_stderr,
            const sigset_t& mask);

// For a command that stays beside its program. What it blocks and waits for: SIGCHLD, and the signals that it
// hands on.
sigset_t signals_beside_program();

// Is it to be handed on? A terminal sends its signals to both processes (SI_KERNEL, sigaction(2)); kill(2)
// sends them to this one alone.
bool is_for_program(const siginfo_t& info);

}  // namespace verbena::tool
