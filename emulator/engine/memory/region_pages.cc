// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/region_pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "emulator.h"
#include "fabric/own_memory.h"

namespace verbena {
namespace {

// DMA_BUF_MAGIC of linux/magic.h, since 5.8.
constexpr long kDmaBufMagic = 0x444d4142;

uintptr_t page_size() { return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

int bring_in_pages(uint64_t begin, uint64_t length, bool writable) {
  const uintptr_t page = page_size();
  const uintptr_t first = begin & ~(page - 1);
  const uintptr_t end = (begin + length + page - 1) & ~(page - 1);
  const int error = populate(first, end - first, writable);
  if (error == 0) return 0;
  // For unmapped addresses madvise(2) has ENOMEM, and pinning has EFAULT (kernel, mm/gup.c).
  if (error == ENOMEM || error == EFAULT || error == EHWPOISON) return EFAULT;
  // A kernel before 5.14, or a mapping that cannot be populated.
  for (uintptr_t at = first; at < end; at += page)
    if (!is_reachable(at, writable)) return EFAULT;
  return 0;
}

int map_descriptor(int fd, uint64_t offset, size_t length, bool writable, MappedBuffer* out) {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) return errno;
  if (length == 0 || offset > static_cast<uint64_t>(size) || length > static_cast<uint64_t>(size) - offset)
    return EINVAL;
  const uint64_t begin = offset & ~(uint64_t{page_size()} - 1);
  const size_t mapped = static_cast<size_t>(offset - begin) + length;
  void* memory = mmap(nullptr, mapped, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
                      static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return errno == ENOMEM ? ENOMEM : EOPNOTSUPP;
  const uint64_t address = reinterpret_cast<uint64_t>(memory) + (offset - begin);
  if (!is_reachable(address, false) || !is_reachable(address + length - 1, false)) {
    munmap(memory, mapped);
    return EOPNOTSUPP;
  }
  *out = {memory, mapped, address};
  return 0;
}

int map_dma_buffer(int fd, uint64_t offset, size_t length, bool writable, MappedBuffer* out) {
  struct statfs status;
  if (fstatfs(fd, &status) != 0) return errno;
  if (status.f_type != kDmaBufMagic) return EINVAL;
  return map_descriptor(fd, offset, length, writable, out);
}

}  // namespace verbena
