// SPDX-License-Identifier: BSD-2-Clause
//
// mmap(2) and shmat(2): note where memory is mapped that others may share (shared_ranges.h), and tell of
// mappings in the place of memory that the emulator has moved (heap_watcher.h). The call itself goes on as it
// is.
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
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

VERBENA_HOOK_OF_CALLS(void*, mmap,
                      (void* address, size_t length, int protection, int flags, int fd, off_t offset)) {
  return map(real_mmap, address, length, protection, flags, fd, offset);
}

VERBENA_HOOK_OF_CALLS(void*, mmap64,
                      (void* address, size_t length, int protection, int flags, int fd, off64_t offset)) {
  return map(real_mmap64, address, length, protection, flags, fd, offset);
}

VERBENA_HOOK_OF_CALLS(void*, shmat, (int segment, const void* address, int flags)) {
  if (!has_node()) return real_shmat(segment, address, flags);
  const int before = errno;
  shmid_ds status{};
  if (shmctl(segment, IPC_STAT, &status) != 0) status.shm_segsz = 0;
  errno = before;
  const HeapChange change(address, (flags & SHM_REMAP) != 0 ? status.shm_segsz : 0);
  void* const result = real_shmat(segment, address, flags);
  if (result != reinterpret_cast<void*>(-1) && status.shm_segsz != 0)
    note_shared_range(reinterpret_cast<uintptr_t>(result), status.shm_segsz);
  return result;
}

}  // namespace verbena
