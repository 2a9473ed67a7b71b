// SPDX-License-Identifier: BSD-2-Clause
//
// Memory by the page, for tests that unmap pages, or map them later.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace verbena::test {

inline constexpr size_t kPageSize = 4096;

// Pages that are freed at the end.
class Pages {
 public:
  explicit Pages(size_t count, int protection = PROT_READ | PROT_WRITE)
      : size_(count * kPageSize),
        data_(mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Pages() { munmap(data_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  void* data_;
};

}  // namespace verbena::test
