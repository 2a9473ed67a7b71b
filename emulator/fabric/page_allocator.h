// SPDX-License-Identifier: BSD-2-Clause
//
// Memory in pages of its own, by system calls. For lists that are needed where malloc(3) must not be called:
// the allocator of the program may hold its locks while it calls munmap(2) or fork(2) waits for them, and a
// thread that holds a lock of the emulator must not wait for those.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

namespace verbena {

template <typename T>
struct PageAllocator {
  using value_type = T;

  PageAllocator() = default;
  template <typename Other>
  PageAllocator(const PageAllocator<Other>&) {}

  T* allocate(size_t count) {
    // Not by the program's mmap(3), which is a hook, or the allocator's own.
    const long memory = syscall(SYS_mmap, nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    if (memory == -1) throw std::bad_alloc();
    return reinterpret_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) { syscall(SYS_munmap, memory, count * sizeof(T)); }

  template <typename Other>
  bool operator==(const PageAllocator<Other>&) const {
    return true;
  }
};

template <typename T>
using PageVector = std::vector<T, PageAllocator<T>>;
using PageText = std::basic_string<char, std::char_traits<char>, PageAllocator<char>>;

}  // namespace verbena
