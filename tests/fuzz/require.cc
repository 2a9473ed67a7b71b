// SPDX-License-Identifier: BSD-2-Clause
#include <cstdio>
#include <cstdlib>

#include "input.h"

namespace verbena::fuzz {

void require(bool holds, const char* promise) {
  if (holds) return;
  fprintf(stderr, "not held: %s\n", promise);
  abort();
}

}  // namespace verbena::fuzz
