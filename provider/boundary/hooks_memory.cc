// SPDX-License-Identifier: BSD-2-Clause
//
// mmap(2): notes where files are mapped MAP_SHARED (shared_ranges.h), and tells of mappings in the place of
// memory that the emulator has moved (heap_watcher.h). The call itself goes on as it is.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boundary/environment.h"
#include "boundary/heap_watcher.h"
#include "boundary/real.h"
#include "boundary/shared_ranges.h"

namespace verbena {
namespace {

template <typename Function>
void* map(Real<Function>& real, void* address, size_t length, int protection, int flags, int fd,
          off_t offset) {
  const HeapChange change(address, (flags & MAP_FIXED) != 0 ? length : 0);
  // Before the constructor, an allocator may be setting itself up: looking libc's function up could allocate.
  void* const result =
      real.is_known()
          ? real(address, length, protection, flags, fd, offset)
          : reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
  // MAP_SHARED_VALIDATE has that bit as well.
  if ((flags & MAP_SHARED) == 0 || (flags & MAP_ANONYMOUS) != 0) [[likely]]
    return result;
  if (result != MAP_FAILED && has_node()) note_shared_range(reinterpret_cast<uintptr_t>(result), length);
  return result;
}

}  // namespace

VERBENA_HOOK void* mmap(void* address, size_t length, int protection, int flags, int fd,
                        off_t offset) noexcept {
  return map(real_mmap, address, length, protection, flags, fd, offset);
}

VERBENA_HOOK void* mmap64(void* address, size_t length, int protection, int flags, int fd,
                          off64_t offset) noexcept {
  return map(real_mmap64, address, length, protection, flags, fd, offset);
}

}  // namespace verbena
