// SPDX-License-Identifier: BSD-2-Clause
//
// Private objects by their index in a table of the segment. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace verbena {

template <typename Object>
class ObjectTable {
 public:
  // `size` entries, all nullptr. Their memory is zeroed when it is first touched: few processes use more than
  // a page of it. Throws std::bad_alloc.
  explicit ObjectTable(uint32_t size)
      : entries_(static_cast<std::atomic<Object*>*>(std::calloc(size, sizeof(std::atomic<Object*>)))) {
    if (entries_ == nullptr) throw std::bad_alloc();
  }

  // nullptr: there is none. index < size
  Object* get(uint32_t index) const { return entries_[index].load(std::memory_order_acquire); }
  void set(uint32_t index, Object* object) { entries_[index].store(object, std::memory_order_release); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::atomic<Object*>[], Free> entries_;
};

}  // namespace verbena
