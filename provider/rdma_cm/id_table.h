// SPDX-License-Identifier: BSD-2-Clause
//
// Small integers for objects: always the smallest free one, as in the kernel (xa_alloc in ucma.c). Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace verbena::rdma_cm {

template <typename T>
class IdTable {
 public:
  // Reserves a number. find() does not return it yet. Throws std::bad_alloc.
  uint32_t reserve() {
    while (free_from_ < entries_.size() && entries_[free_from_].taken) ++free_from_;
    if (free_from_ == entries_.size()) entries_.emplace_back();
    entries_[free_from_] = {nullptr, true};
    return static_cast<uint32_t>(free_from_++);
  }
  void put(uint32_t id, T* object) { entries_[id].object = object; }

  // nullptr: none has this number (any more, or yet).
  T* find(uint32_t id) const { return id < entries_.size() ? entries_[id].object : nullptr; }

  // find() does not return it any more. The number stays reserved.
  void hide(uint32_t id) { entries_[id].object = nullptr; }
  void release(uint32_t id) {
    entries_[id] = {nullptr, false};
    if (id < free_from_) free_from_ = id;
  }

 private:
  struct Entry {
    T* object = nullptr;
    bool taken = false;
  };
  std::vector<Entry> entries_;
  size_t free_from_ = 0;  // none below is free
};

}  // namespace verbena::rdma_cm
