// SPDX-License-Identifier: BSD-2-Clause
#pragma once

namespace verbena::check {

// The function that the program would call without the checker. A library that a module of an interpreter has
// brought along is not in the search order of RTLD_NEXT: it is looked up by its name. Ends the process if
// there is none.
void* find_next_function(const char* name);

template <typename Function>
Function* next_function(const char* name) {
  return reinterpret_cast<Function*>(find_next_function(name));
}

}  // namespace verbena::check
