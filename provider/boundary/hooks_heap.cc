// SPDX-License-Identifier: BSD-2-Clause
//
// munmap(2), mremap(2), mprotect(2) and madvise(2) of memory that the emulator has moved into a file
// (heap_memory.h). Calls for all other memory go on as they are. (mmap(2): hooks_memory.cc.)
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boundary/heap_memory.h"
#include "boundary/heap_watcher.h"
#include "boundary/real.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace verbena {
namespace {

// What the kernel keeps with a mapping, and a new one has to inherit.
bool stays_with_mapping(int advice) {
  switch (advice) {
    case MADV_DONTFORK:
    case MADV_DONTDUMP:
    case MADV_WIPEONFORK:
    case MADV_MERGEABLE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
      return true;
    default:
      return false;
  }
}

}  // namespace

// As in hooks_memory.cc: before the constructor, an allocator may be setting itself up.
VERBENA_HOOK_OF_CALLS(int, munmap, (void* address, size_t length)) {
  const HeapChange change(address, length);
  return real_munmap.is_known() ? real_munmap(address, length)
                                : static_cast<int>(syscall(SYS_munmap, address, length));
}

VERBENA_HOOK int mprotect(void* address, size_t length, int protection) noexcept {
  const HeapChange change(address, length);
  return real_mprotect.is_known() ? real_mprotect(address, length, protection)
                                  : static_cast<int>(syscall(SYS_mprotect, address, length, protection));
}

VERBENA_HOOK_OF_CALLS(void*, mremap, (void* address, size_t old_length, size_t length, int flags, ...)) {
  va_list more;
  va_start(more, flags);
  // Read only if it was given: mremap(2).
  void* const target = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void*) : nullptr;
  va_end(more);
  make_heap_private(address, old_length);
  const HeapChange change(target, (flags & MREMAP_FIXED) != 0 ? length : 0);
  return real_mremap.is_known()
             ? real_mremap(address, old_length, length, flags, target)
             : reinterpret_cast<void*>(syscall(SYS_mremap, address, old_length, length, flags, target));
}

VERBENA_HOOK_OF_CALLS(int, madvise, (void* address, size_t length, int advice)) {
  if (stays_with_mapping(advice)) note_advice();
  if ((advice == MADV_DONTNEED || advice == MADV_FREE) && is_heap_memory(address, length))
    return forget_heap_pages(address, length, advice);
  if (advice == MADV_WIPEONFORK || advice == MADV_MERGEABLE) make_heap_private(address, length);
  return real_madvise.is_known() ? real_madvise(address, length, advice)
                                 : static_cast<int>(syscall(SYS_madvise, address, length, advice));
}

}  // namespace verbena
