// SPDX-License-Identifier: BSD-2-Clause
//
// How pages of this process move between private memory and a file in memory whose offsets are addresses
// (shared_heap.h). No write of another thread is lost, and nothing here calls malloc(3).
#pragma once

#include <cstdint>
#include <utility>

#include "fabric/movable_memory.h"

namespace verbena {

// The kernel's ordinary page, in bytes.
uint64_t small_page();

// mmap(2), not by the program's function, which is a hook. MAP_FAILED and errno.
void* map_pages(uint64_t at, uint64_t length, int protection, int flags, int fd, uint64_t offset);

// A huge page that is kept, so that pages can be exchanged one by one where no other one is free. Forked
// children do not have it.
class SparePage {
 public:
  SparePage() = default;
  SparePage(SparePage&& other) noexcept { *this = std::move(other); }
  SparePage& operator=(SparePage&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~SparePage();

  // False: there is none.
  bool keep(uint64_t size);
  // The page, which is the caller's from now on: all zeros. 0: none is kept.
  uint64_t take() { return std::exchange(address_, 0); }

 private:
  uint64_t address_ = 0, size_ = 0;
};

// All signals of this thread: a handler of the program could write to pages whose writes are held back.
class SignalsBlocked {
 public:
  SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked();

 private:
  uint64_t former_ = 0;
};

class HeldWrites;

// What moves at once: part of one mapping.
struct HeapPiece {
  PageRange range;
  uint64_t page_size;  // bytes
  Advice advice;
  bool is_of_break;  // of the heap of brk(2)
};

// For the functions below: the caller blocks signals.
//
// Moves the piece into the file, which has pages of that size. False: it has not been moved, or not all of
// it; the program has the same bytes either way.
bool move_piece(HeldWrites& writes, int fd, const HeapPiece& piece);

// The other way round: private anonymous memory with the same bytes in the place of `range`. `like`: mapped
// there, its protection and advice are those of the whole range. For huge pages, `fd` (-1: none) is the file
// whose pages these are. False: there is no memory, or there are too many mappings; then nothing has changed,
// or some huge pages have been given back.
bool give_back(const PageRange& range, uint64_t page_size, const MappedRange& like, int fd, SparePage* spare);

// A private mapping of the same pages of the file in the place of `range`, which is mapped as `like`. False:
// it stays as it is.
bool map_private(const PageRange& range, uint64_t page_size, const MappedRange& like, int fd);

// Frees the file's pages in [begin, end).
void free_pages(int fd, uint64_t begin, uint64_t end);

}  // namespace verbena
