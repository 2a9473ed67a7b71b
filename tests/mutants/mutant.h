// SPDX-License-Identifier: BSD-2-Clause
//
// Deviations planted on purpose, each as a driver might have it, so that the conformance suite can be asked
// whether it sees them (tests/mutants; docs/TESTING.md). An ordinary build has nothing of them: mutated() is
// false before the compiler generates anything. Only .cc files ask: those that do are compiled a second time,
// the rest is shared.
#pragma once

#ifdef VERBENA_MUTANTS
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#endif

namespace verbena {

#ifdef VERBENA_MUTANTS

// Is `name` the deviation that VERBENA_MUTANT names?
inline bool mutated(const char* name) noexcept {
  static const char* const chosen = std::getenv("VERBENA_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

// Is any deviation chosen? Shortcuts that have none of their own are left out then.
inline bool is_any_mutant() noexcept {
  static const bool chosen = std::getenv("VERBENA_MUTANT") != nullptr;
  return chosen;
}

// Does `work` when everybody has had the time to look, in a thread of its own. The sleep is the deviation: a driver that
// is late.
template <typename Work>
void later(Work work) {
  std::thread([work = std::move(work)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    work();
  }).detach();
}

#else

consteval bool mutated(const char* /*name*/) { return false; }
consteval bool is_any_mutant() { return false; }

template <typename Work>
void later(Work) {}

#endif

}  // namespace verbena
