// SPDX-License-Identifier: BSD-2-Clause
//
// The pages under a memory region: are they there, and how does a descriptor become memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// Brings in every page that [begin, begin + length) touches, for writing if so asked, as pinning on an
// adapter would. 0; EFAULT: not mapped, or not writable.
int bring_in_pages(uint64_t begin, uint64_t length, bool writable);

// A dma-buf as memory of this process: [offset, offset + length) of it lies at *address. Only what can be
// mapped and read by the kernel on another's behalf is memory to us.
//   EBADF       no descriptor
//   EINVAL      no dma-buf (kernel, dma_buf_get()), or it is shorter
//   EOPNOTSUPP  its exporter cannot map it, or maps what only the CPU may touch
struct MappedBuffer {
  void* mapping;  // munmap(2) it
  size_t mapping_size;
  uint64_t address;
};
int map_dma_buffer(int fd, uint64_t offset, size_t length, bool writable, MappedBuffer* out);

// The same for any descriptor that has a length.
int map_descriptor(int fd, uint64_t offset, size_t length, bool writable, MappedBuffer* out);

}  // namespace verbena
