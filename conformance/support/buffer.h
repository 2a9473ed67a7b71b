// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace conformance {

// Pages between two guard pages; filled with one byte.
class Buffer {
 public:
  static constexpr uint8_t untouched = 0x5a;

  explicit Buffer(size_t size) : size_(size), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    mapped_ = (size + page_ - 1) / page_ * page_ + 2 * page_;
    void* memory = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<uint8_t*>(memory);
    if (mprotect(data(), mapped_ - 2 * page_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    if (size >= kLarge) madvise(data(), mapped_ - 2 * page_, MADV_HUGEPAGE);  // a hint: it may be refused
    memset(data(), untouched, size);
  }
  ~Buffer() { munmap(base_, mapped_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() const { return base_ + page_; }
  size_t size() const { return size_; }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(data() + offset); }
  uint8_t& operator[](size_t index) const { return data()[index]; }

  // Every byte from `begin` up to `end` has this value.
  bool is(uint8_t value, size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i)
      if (data()[i] != value) return false;
    return true;
  }

 private:
  // Of more, page faults of ordinary pages take longer than what a test does with them.
  static constexpr size_t kLarge = size_t{64} << 20;

  size_t size_, page_, mapped_;
  uint8_t* base_;
};

}  // namespace conformance
