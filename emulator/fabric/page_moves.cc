// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/page_moves.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "fabric/held_writes.h"
#include "fabric/memory_file.h"
#include "fabric/own_memory.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // since Linux 6.1
#endif

namespace verbena {
namespace {

// Bytes whose writes are held back at a time, for about a millisecond.
constexpr uint64_t kChunk = 2 * 1024 * 1024;
// What one transparent huge page may take of the processor, in ns, unless the kernel has to find room for it
// (0.5 ms), and how often it may fail or take longer in one piece.
constexpr int64_t kOrdinaryTime = 2'000'000;
constexpr int kPatience = 16;
constexpr int kBoth = PROT_READ | PROT_WRITE;

void unmap_pages(void* memory, uint64_t length) { syscall(SYS_munmap, memory, length); }

// Puts the mapping at `memory` in the place of [begin, begin + length).
bool put_in_place(void* memory, uint64_t begin, uint64_t length) {
  return syscall(SYS_mremap, memory, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, begin) != -1;
}

// Writes the bytes of the range into `fd` at `offset`.
bool write_pages(int fd, uint64_t begin, uint64_t length, uint64_t offset) {
  for (uint64_t done = 0; done < length;) {
    const long n = syscall(SYS_pwrite64, fd, begin + done, length - done, static_cast<long>(offset + done));
    if (n > 0)
      done += static_cast<uint64_t>(n);
    else if (n == 0 || errno != EINTR)
      return false;
  }
  return true;
}

int64_t processor_time() {
  timespec time{};
  syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

// Gives the file a transparent huge page of kChunk bytes at `offset`, before there are bytes: one page is
// enough for the kernel to make them all. `window`: 2 * kChunk addresses to do so. False: there is none, or
// it has taken long.
bool make_transparent_page(int fd, uint64_t offset, uint64_t window) {
  const uint64_t at = (window + kChunk - 1) & ~(kChunk - 1);
  if (map_pages(at, kChunk, kBoth, MAP_SHARED | MAP_FIXED, fd, offset) == MAP_FAILED) return false;
  const int64_t begin = processor_time();
  return populate(at, small_page(), true) == 0 && syscall(SYS_madvise, at, kChunk, MADV_COLLAPSE) == 0 &&
         processor_time() - begin < kOrdinaryTime;
}

// Between hold() and wake() nothing may be written but the caller's stack.
bool move_chunk(HeldWrites& writes, int fd, uint64_t begin, uint64_t length) {
  // A page that is not there yet is not held.
  if (populate(begin, length, false) != 0 || !writes.hold(begin, length)) return false;
  if (!write_pages(fd, begin, length, begin) ||
      map_pages(begin, length, kBoth, MAP_SHARED | MAP_FIXED, fd, begin) == MAP_FAILED) {
    writes.release(begin, length);
    return false;
  }
  writes.wake(begin, length);
  return true;
}

// `transparent`: in huge pages, if the kernel gives them.
bool move_small_pages(HeldWrites& writes, int fd, const PageRange& range, bool transparent) {
  void* const window =
      !transparent ? MAP_FAILED
                   : map_pages(0, 2 * kChunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  int patience = window == MAP_FAILED ? 0 : kPatience;
  bool moved = true;
  for (uint64_t at = range.begin; at < range.end && moved;) {
    const uint64_t next = std::min((at + kChunk) & ~(kChunk - 1), range.end);
    if (next - at == kChunk && patience > 0 &&
        !make_transparent_page(fd, at, reinterpret_cast<uint64_t>(window)))
      --patience;
    moved = move_chunk(writes, fd, at, next - at);
    at = next;
  }
  if (window != MAP_FAILED) unmap_pages(window, 2 * kChunk);
  return moved;
}

// A huge page. write(2) is not for files of these: the bytes go through a mapping. One free huge page is
// needed for a moment: the private page becomes free when the file's has taken its place.
bool move_huge_page(HeldWrites& writes, int fd, uint64_t begin, uint64_t page) {
  void* const window = map_pages(0, page, kBoth, MAP_SHARED, fd, begin);
  if (window == MAP_FAILED) return false;
  bool moved = populate(reinterpret_cast<uint64_t>(window), page, true) == 0 &&
               populate(begin, page, false) == 0 && writes.hold(begin, page);
  if (moved) {
    memcpy(window, reinterpret_cast<const void*>(begin), page);
    moved = map_pages(begin, page, kBoth, MAP_SHARED | MAP_FIXED, fd, begin) != MAP_FAILED;
    if (moved)
      writes.wake(begin, page);
    else
      writes.release(begin, page);
  }
  unmap_pages(window, page);
  if (!moved) free_pages(fd, begin, begin + page);
  return moved;
}

// The kernel merges no mappings of huge pages, and a process may have some 65,000 (vm.max_map_count). The
// pages are there: nothing more is reserved.
void join_huge_pages(int fd, uint64_t begin, uint64_t end) {
  if (end > begin) map_pages(begin, end - begin, kBoth, MAP_SHARED | MAP_FIXED, fd, begin);
}

bool move_huge_piece(HeldWrites& writes, int fd, const HeapPiece& piece) {
  constexpr uint64_t kTogether = 256;  // pages
  const auto [begin, end] = piece.range;
  uint64_t joined = begin;
  for (uint64_t at = begin; at < end; at += piece.page_size) {
    if (at - joined == kTogether * piece.page_size) join_huge_pages(fd, joined, at), joined = at;
    if (move_huge_page(writes, fd, at, piece.page_size)) continue;
    join_huge_pages(fd, begin, at);
    advise({begin, at}, piece.advice);
    return false;
  }
  join_huge_pages(fd, begin, end);
  return true;
}

// Copies pages that may be read, but whose file may have holes, for which no huge page may be free (EFAULT):
// `to` has zeros for them already. False: the hardware has lost the bytes (EHWPOISON), or the kernel has no
// memory for its own table of a page that may well be there (ENOMEM).
bool copy_huge_pages(void* to, uint64_t from, uint64_t length, uint64_t page) {
  for (uint64_t done = 0; done < length; done += page) {
    const int error = populate(from + done, page, false);
    if (error == 0)
      memcpy(static_cast<char*>(to) + done, reinterpret_cast<const void*>(from + done), page);
    else if (error != EFAULT)
      return false;
  }
  return true;
}

// Puts `copy`, private memory without a byte yet, with the bytes of [begin, begin + length) in their place.
bool replace_pages(void* copy, uint64_t begin, uint64_t length, uint64_t page, const MappedRange& like) {
  // A kernel before 5.19 cannot hold writes to pages of a file back. It goes on all the same.
  HeldWrites writes;
  const bool held = writes.open() && writes.prepare(begin, length) && writes.hold(begin, length);
  if ((like.protection & PROT_READ) == 0) syscall(SYS_mprotect, begin, length, PROT_READ);
  bool moved = true;
  if (page == small_page())
    memcpy(copy, reinterpret_cast<const void*>(begin), length);
  else
    moved = copy_huge_pages(copy, begin, length, page);
  if (like.protection != kBoth) syscall(SYS_mprotect, copy, length, like.protection);
  moved = moved && put_in_place(copy, begin, length);
  if (!moved) {
    unmap_pages(copy, length);
    if ((like.protection & PROT_READ) == 0) syscall(SYS_mprotect, begin, length, like.protection);
  }
  if (held) writes.wake(begin, length);
  return moved;
}

// In one mapping.
bool give_back_whole(const PageRange& range, uint64_t page, const MappedRange& like) {
  const uint64_t length = range.end - range.begin;
  const bool huge = page != small_page();
  void* const copy = map_pages(
      0, length, kBoth, MAP_PRIVATE | MAP_ANONYMOUS | (huge ? huge_page_flags(MAP_HUGETLB, page) : 0), -1, 0);
  if (copy == MAP_FAILED) return false;
  if (huge && populate(reinterpret_cast<uint64_t>(copy), length, true) != 0)
    return unmap_pages(copy, length), false;
  return replace_pages(copy, range.begin, length, page, like);
}

// Where fewer huge pages are free: each one that leaves the file is the next one's spare.
bool give_back_singly(const PageRange& range, uint64_t page, const MappedRange& like, int fd,
                      SparePage& spare) {
  for (uint64_t at = range.begin; at < range.end; at += page) {
    const uint64_t copy = spare.take();
    if (copy == 0) return false;
    syscall(SYS_madvise, copy, page, MADV_DOFORK);
    const bool moved = replace_pages(reinterpret_cast<void*>(copy), at, page, page, like);
    if (moved) free_pages(fd, at, at + page);
    if (!spare.keep(page) && (!moved || at + page < range.end)) return false;
    if (!moved) return false;
  }
  return true;
}

}  // namespace

uint64_t small_page() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

void* map_pages(uint64_t at, uint64_t length, int protection, int flags, int fd, uint64_t offset) {
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, at, length, protection, flags, fd, static_cast<long>(offset)));
}

SparePage::~SparePage() {
  if (address_ != 0) syscall(SYS_munmap, address_, size_);
}

bool SparePage::keep(uint64_t size) {
  if (address_ != 0) return true;
  void* const page =
      map_pages(0, size, kBoth, MAP_PRIVATE | MAP_ANONYMOUS | huge_page_flags(MAP_HUGETLB, size), -1, 0);
  if (page == MAP_FAILED) return false;
  syscall(SYS_madvise, page, size, MADV_DONTFORK);
  if (populate(reinterpret_cast<uint64_t>(page), size, true) != 0) return unmap_pages(page, size), false;
  address_ = reinterpret_cast<uint64_t>(page);
  size_ = size;
  return true;
}

SignalsBlocked::SignalsBlocked() {
  const uint64_t all = ~uint64_t{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &former_, sizeof all);
}

SignalsBlocked::~SignalsBlocked() {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &former_, nullptr, sizeof former_);
}

bool move_piece(HeldWrites& writes, int fd, const HeapPiece& piece) {
  const auto [begin, end] = piece.range;
  if (!writes.prepare(begin, end - begin)) return false;
  const bool huge = piece.page_size != small_page();
  if (huge ? !move_huge_piece(writes, fd, piece)
           : !move_small_pages(writes, fd, piece.range,
                               end - begin >= kChunk && has_transparent_pages(piece.advice)))
    return false;
  advise(piece.range, piece.advice);
  // A mapping of its own for the last page. libc's realloc(3) moves a block by a call of mremap(2) that no
  // hook sees, and a longer mapping would show pages of the file that are another block's. Of two mappings
  // the kernel moves none (EFAULT), and realloc() copies. Mappings of huge pages are never merged.
  if (!piece.is_of_break && !huge) syscall(SYS_madvise, end - small_page(), small_page(), MADV_RANDOM);
  populate(begin, end - begin, true);  // as it was
  return true;
}

bool give_back(const PageRange& range, uint64_t page_size, const MappedRange& like, int fd,
               SparePage* spare) {
  const Advice advice = advice_of(like);
  if (give_back_whole(range, page_size, like)) {
    if (page_size != small_page() && fd >= 0) free_pages(fd, range.begin, range.end);
  } else if (page_size == small_page() || fd < 0 || spare == nullptr ||
             !give_back_singly(range, page_size, like, fd, *spare)) {
    return false;
  }
  advise(range, advice);
  return true;
}

bool map_private(const PageRange& range, uint64_t page_size, const MappedRange& like, int fd) {
  const uint64_t length = range.end - range.begin;
  if (page_size == small_page())
    return map_pages(range.begin, length, like.protection, MAP_PRIVATE | MAP_FIXED, fd, like.offset) !=
           MAP_FAILED;
  // Elsewhere first: the kernel may have too few huge pages to reserve, and says so after it has unmapped
  // what was there.
  void* const memory = map_pages(0, length, like.protection, MAP_PRIVATE, fd, like.offset);
  if (memory == MAP_FAILED) return false;
  if (put_in_place(memory, range.begin, length)) return true;
  unmap_pages(memory, length);
  return false;
}

void free_pages(int fd, uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end;) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 || static_cast<uint64_t>(data) >= end) return;
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    const off_t stop = std::min(hole, static_cast<off_t>(end));
    if (hole <= data || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data, stop - data) != 0)
      return;
    at = static_cast<uint64_t>(stop);
  }
}

}  // namespace verbena
