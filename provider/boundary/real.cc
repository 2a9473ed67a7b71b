// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/real.h"

#include <dlfcn.h>

#include "boundary/check_version.h"
#include "boundary/descriptors.h"
#include "boundary/environment.h"

namespace verbena {

void* next_definition(const char* name) {
  const int saved = errno;
  void* definition = dlsym(RTLD_NEXT, name);
  errno = saved;
  return definition;
}

void* next_definition(const char* name, const char* version) {
  const int saved = errno;
  void* definition = dlvsym(RTLD_NEXT, name, version);
  if (definition == nullptr) dlerror();  // not for the program
  errno = saved;
  return definition;
}

#define VERBENA_DEFINE_REAL(name, ...) constinit Real<__VA_ARGS__> real_##name{#name};
VERBENA_REAL_FUNCTIONS(VERBENA_DEFINE_REAL)
#undef VERBENA_DEFINE_REAL

namespace {

// Looks up everything now, so that no hook calls dlsym later in a signal handler or between vfork and exec.
__attribute__((constructor)) void start() {
#define VERBENA_FIND_REAL(name, ...) real_##name.find();
  VERBENA_REAL_FUNCTIONS(VERBENA_FIND_REAL)
#undef VERBENA_FIND_REAL
  real_munmap.find(VERBENA_CHECK_VERSION);
  if (has_node()) prepare_descriptors();
}

}  // namespace
}  // namespace verbena
