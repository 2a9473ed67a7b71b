// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/heap_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

namespace verbena {
namespace {

// A Bloom filter of blocks of addresses: no limit, and false positives only.
constexpr unsigned kBlockShift = 21;  // 2 MiB
constexpr unsigned kBits = 1u << 16;
constinit std::atomic<uint64_t> blocks[kBits / 64];
constinit std::atomic<bool> any{false};
constinit std::atomic<bool> advised{false};

unsigned bit_of(uint64_t block) { return static_cast<unsigned>((block * 0x9e3779b97f4a7c15u) >> 48); }

bool may_be_heap(uint64_t address, uint64_t length) {
  if (!any.load(std::memory_order_acquire) || length == 0) return false;
  const uint64_t first = address >> kBlockShift, last = (address + length - 1) >> kBlockShift;
  if (last - first >= kBits) return true;
  for (uint64_t block = first; block <= last; ++block) {
    const unsigned bit = bit_of(block);
    if ((blocks[bit / 64].load(std::memory_order_relaxed) >> (bit % 64) & 1) != 0) return true;
  }
  return false;
}

struct Mapping {
  uint64_t begin, end;
  uint64_t page;  // bytes
  bool huge;
  int protection;
  bool shared;
};

// The lines of /proc/self/maps that show the file, one after the other.
class HeapMappings {
 public:
  HeapMappings()
      : fd_(static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0))) {}
  HeapMappings(const HeapMappings&) = delete;
  HeapMappings& operator=(const HeapMappings&) = delete;
  ~HeapMappings() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }

  bool next(Mapping* out) {
    char line[kLine];
    while (take_line(line))
      if (const char* const file = file_of(line); file != nullptr && parse(line, file, out)) return true;
    return false;
  }

 private:
  static constexpr size_t kLine = 192;  // a longer one has a path, and is cut

  bool take_line(char* line) {
    for (size_t size = 0;;) {
      if (at_ == filled_) {
        const long got = fd_ < 0 ? 0 : syscall(SYS_read, fd_, buffer_, sizeof buffer_);
        if (got <= 0) return false;
        at_ = 0;
        filled_ = static_cast<size_t>(got);
      }
      const char c = buffer_[at_++];
      if (c == '\n') return line[size] = 0, true;
      if (size + 1 < kLine) line[size++] = c;
    }
  }

  static const char* file_of(const char* line) {
    constexpr char kName[] = " /memfd:verbena-heap";
    const char* const name = strstr(line, kName);
    return name == nullptr ? nullptr : name + sizeof kName - 1;
  }

  static const char* number(const char* text, uint64_t* out) {
    for (*out = 0;; ++text) {
      const char c = *text;
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return text;
      *out = *out << 4 | static_cast<unsigned>(digit);
    }
  }

  // `file`: what follows its name, "-2048kB" for example if it has huge pages.
  static bool parse(const char* line, const char* file, Mapping* out) {
    line = number(line, &out->begin);
    if (*line != '-') return false;
    line = number(line + 1, &out->end);
    if (*line != ' ' || strlen(line) < 5) return false;
    out->protection = (line[1] == 'r' ? PROT_READ : 0) | (line[2] == 'w' ? PROT_WRITE : 0) |
                      (line[3] == 'x' ? PROT_EXEC : 0);
    out->shared = line[4] == 's';
    out->huge = *file == '-';
    out->page = 0;
    if (out->huge)
      for (++file; *file >= '0' && *file <= '9'; ++file)
        out->page = out->page * 10 + static_cast<unsigned>(*file - '0') * 1024;
    else
      out->page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return true;
  }

  const int fd_;
  size_t at_ = 0, filled_ = 0;
  char buffer_[2048];
};

// Calls work(mapping) for each one, cut to the range. Ends with the first one for which it returns false.
template <typename Work>
void for_each_piece(uint64_t address, uint64_t length, const Work& work) {
  HeapMappings mappings;
  for (Mapping each; mappings.next(&each);) {
    if (each.begin < address) each.begin = address;
    if (each.end > address + length) each.end = address + length;
    if (each.begin < each.end && !work(each)) return;
  }
}

}  // namespace

void watch_heap_memory(uint64_t address, uint64_t length) {
  for (uint64_t block = address >> kBlockShift; block <= (address + length - 1) >> kBlockShift; ++block) {
    const unsigned bit = bit_of(block);
    blocks[bit / 64].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_relaxed);
  }
  any.store(true, std::memory_order_release);
}

bool is_heap_memory(const void* address, size_t length) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (!may_be_heap(begin, length)) [[likely]]
    return false;
  const int before = errno;
  bool found = false;
  for_each_piece(begin, length, [&](const Mapping&) {
    found = true;
    return false;
  });
  errno = before;
  return found;
}

namespace {

bool has_huge_pages(void* address, size_t length) {
  bool found = false;
  for_each_piece(reinterpret_cast<uint64_t>(address), length, [&](const Mapping& each) {
    found = each.huge;
    return !found;
  });
  return found;
}

// Private huge pages of zeros in the place of `piece`. Made elsewhere first: if there are too few, the kernel
// says so when what was there is gone.
void clear_huge_pages(const Mapping& piece, uint64_t size) {
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | __builtin_ctzll(piece.page) << MAP_HUGE_SHIFT;
  const long made = syscall(SYS_mmap, nullptr, size, piece.protection, kind, -1, 0L);
  if (made != -1 && syscall(SYS_mremap, made, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, piece.begin) != -1)
    return;
  if (made != -1) syscall(SYS_munmap, made, size);
  if ((piece.protection & PROT_WRITE) != 0) memset(reinterpret_cast<void*>(piece.begin), 0, size);
}

}  // namespace

int forget_heap_pages(void* address, size_t length, int advice) {
  // MADV_FREE is an error there, as it was for the private pages.
  if (!has_huge_pages(address, length)) advice = MADV_DONTNEED;
  // Finds errors, and takes care of all other memory in the range.
  if (syscall(SYS_madvise, address, length, advice) != 0) return -1;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t whole = (length + page - 1) & ~(page - 1);
  for_each_piece(reinterpret_cast<uint64_t>(address), whole, [](const Mapping& each) {
    // The kernel leaves alone a huge page at the end that is not whole (madvise(2)).
    const uint64_t size = (each.end & ~(each.page - 1)) - each.begin;
    if (each.end - each.begin < each.page) return true;
    // A shared page is freed in the file, and a later access finds zeros there. What a fork has made private
    // shows the file's bytes again: anonymous memory takes its place. So it does where a page may not be
    // written, which MADV_REMOVE wants.
    if (each.shared && syscall(SYS_madvise, each.begin, size, MADV_REMOVE) == 0) return true;
    if (each.huge)
      clear_huge_pages(each, size);
    else
      syscall(SYS_mmap, each.begin, size, each.protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return true;
  });
  return 0;
}

bool has_advised() { return advised.load(std::memory_order_relaxed); }
void note_advice() { advised.store(true, std::memory_order_relaxed); }

}  // namespace verbena
