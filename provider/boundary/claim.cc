// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/claim.h"

#include <errno.h>

#include "boundary/descriptors.h"
#include "boundary/heap_memory.h"
#include "boundary/real.h"
#include "boundary/shared_ranges.h"
#include "boundary/watch.h"

VERBENA_HOOK int verbena_boundary_claim(int fd, const verbena_boundary_handler* handler) {
  if (handler == nullptr || handler->write == nullptr) return EINVAL;
  return verbena::claim_descriptor(fd, *handler);
}

VERBENA_HOOK int verbena_boundary_find(int fd, verbena_boundary_handler* handler) {
  return verbena::find_handler(fd, handler) ? 0 : EBADF;
}

VERBENA_HOOK int verbena_boundary_was_shared(uint64_t address) {
  return verbena::was_shared(address) ? 1 : 0;
}

VERBENA_HOOK void verbena_boundary_watch_memory(uint64_t address, uint64_t length) {
  verbena::watch_heap_memory(address, length);
}

VERBENA_HOOK int verbena_boundary_has_advised(void) { return verbena::has_advised() ? 1 : 0; }

VERBENA_HOOK void verbena_boundary_release(int fd) { verbena::release_descriptor(fd); }
