// SPDX-License-Identifier: BSD-2-Clause
//
// The pages of a memory region: bringing them in, and mapping a descriptor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// Brings in every page of [begin, begin + length), `writable`: for writing, as an adapter's pinning would. 0,
// or EFAULT: not mapped, or not writable.
int bring_in_pages(uint64_t begin, uint64_t length, bool writable);

// Maps [offset, offset + length) of a dma-buf into this process, at out->address. The kernel must be able to
// read the mapping on behalf of another process. Returns 0, or:
//   EBADF       no descriptor
//   EINVAL      no dma-buf (kernel, dma_buf_get()), or it is shorter
//   ENOMEM      no memory for the mapping
//   EOPNOTSUPP  its exporter cannot map it, or maps what only the CPU can access
struct MappedBuffer {
  void* mapping;  // the caller's to munmap(2)
  size_t mapping_size;
  uint64_t address;
};
int map_dma_buffer(int fd, uint64_t offset, size_t length, bool writable, MappedBuffer* out);

// The same for any descriptor that has a length (lseek(2)).
int map_descriptor(int fd, uint64_t offset, size_t length, bool writable, MappedBuffer* out);

}  // namespace verbena
