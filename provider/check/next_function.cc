// SPDX-License-Identifier: BSD-2-Clause
#include "check/next_function.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace verbena::check {

void* find_next_function(const char* name) {
  if (void* const found = dlsym(RTLD_NEXT, name); found != nullptr) return found;
  const char* const library = strncmp(name, "rdma_", 5) == 0 ? "librdmacm.so.1" : "libibverbs.so.1";
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  void* const found = handle != nullptr ? dlsym(handle, name) : nullptr;
  if (found == nullptr) {
    fprintf(stderr, "verbena check: there is no %s in %s\n", name, library);
    abort();
  }
  return found;
}

}  // namespace verbena::check
