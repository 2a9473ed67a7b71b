// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/shared_heap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "adapter/memcheck.h"
#include "fabric/held_writes.h"
#include "fabric/kept_descriptor.h"
#include "fabric/mapping_barrier.h"
#include "fabric/memory_file.h"
#include "fabric/memory_map.h"
#include "fabric/movable_memory.h"
#include "fabric/own_memory.h"
#include "fabric/shared_file.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint64_t kFileSize = uint64_t{1} << 57;  // bytes: more than any address; the file is sparse
// Bytes whose writes are held back at a time, for about a millisecond.
constexpr uint64_t kChunk = 2 * 1024 * 1024;
// Each of them may cost three mappings (vm.max_map_count).
constexpr unsigned kMostPieces = 4096;

struct File {
  KeptDescriptor descriptor;
  dev_t device;
  ino_t inode;
};

struct Heap {
  std::mutex mutex;
  MappingBarrier barrier;  // closed while a fork replaces mappings
  std::atomic<bool> allowed{false};
  HeapHooks hooks{};
  PageVector<File> files;  // the last one takes new pages, if `takes_pages`
  bool takes_pages = false;
  unsigned pieces = 0;
  PageVector<PageRange> moved;  // is in the last file, unless libc has unmapped it unseen; sorted
  PageText at_fork;             // the mappings, from the first call for a fork to the last
};

Heap& heap() {
  static Heap* const the_heap = new Heap;  // never destroyed: threads may outlive main()
  return *the_heap;
}

uint64_t page_size() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

PageRange pages_of(uint64_t address, uint64_t length) {
  const uint64_t page = page_size();
  return {address & ~(page - 1), (address + length + page - 1) & ~(page - 1)};
}

// Not by the program's functions, which are hooks.
void* map(uint64_t at, uint64_t length, int protection, int flags, int fd, uint64_t offset) {
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, at, length, protection, flags, fd, static_cast<long>(offset)));
}

bool is_of(const File& file, const MappedRange& range) {
  return range.inode == file.inode && range.device == file.device;
}

const File* file_of(const MappedRange& range) {
  const auto& files = heap().files;
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const File& file) { return is_of(file, range); });
  return found == files.end() ? nullptr : &*found;
}

bool needs_flags() {
  const Heap& the = heap();
  return (the.hooks.has_advised != nullptr && the.hooks.has_advised()) || memory_status("VmLck") > 0;
}

// Remembers that the range is in the last file.
void remember(const PageRange& range) {
  auto& moved = heap().moved;
  const auto first = std::find_if(moved.begin(), moved.end(),
                                  [&](const PageRange& each) { return each.end >= range.begin; });
  PageRange whole = range;
  auto last = first;
  for (; last != moved.end() && last->begin <= range.end; ++last)
    whole = {std::min(whole.begin, last->begin), std::max(whole.end, last->end)};
  moved.insert(moved.erase(first, last), whole);
}

// Forgets the same.
void forget(const PageRange& range) {
  PageVector<PageRange> kept;
  for (const PageRange& each : heap().moved) {
    if (each.begin < range.begin) kept.push_back({each.begin, std::min(each.end, range.begin)});
    if (each.end > range.end) kept.push_back({std::max(each.begin, range.end), each.end});
  }
  heap().moved.swap(kept);
}

// Without a look at the list of mappings, which takes some 100 us.
bool is_known(const PageRange& range) {
  const Heap& the = heap();
  return the.takes_pages &&
         std::any_of(
             the.moved.begin(), the.moved.end(),
             [&](const PageRange& each) { return each.begin <= range.begin && range.end <= each.end; }) &&
         is_file_page(range.begin) && is_file_page(range.end - 1);
}

struct Piece {
  PageRange range;
  Advice advice;
  bool is_of_break;  // of the heap of brk(2)
};

// What of `wanted` is to be moved. False: part of it is nothing that may be moved.
bool find_pieces(std::string_view text, const PageRange& wanted, PageVector<Piece>* out) {
  const Heap& the = heap();
  uint64_t next = wanted.begin;
  MappedRange before{};
  for (MappedRange range; next < wanted.end && take_range(&text, &range); before = range) {
    if (range.end <= next) continue;
    if (range.begin > next) return false;
    const uint64_t end = std::min(range.end, wanted.end);
    const bool is_there =
        the.takes_pages && range.shared && is_of(the.files.back(), range) && range.offset == range.begin;
    if (!is_there) {
      if (!may_move({next, end}, range, before)) return false;
      out->push_back({{next, end}, advice_of(range), range.path == "[heap]"});
    }
    next = end;
  }
  return next == wanted.end;
}

bool open_file() {
  Heap& the = heap();
  if (the.takes_pages && the.files.back().descriptor.fd() >= 0) return true;
  the.takes_pages = false;
  const int fd = make_memory_file(kHeapFile, kFileSize);
  if (fd < 0) return false;
  struct stat status;
  if (fstat(fd, &status) != 0) {
    syscall(SYS_close, fd);
    return false;
  }
  the.files.push_back({{}, status.st_dev, status.st_ino});
  the.files.back().descriptor.keep(fd);
  the.takes_pages = true;
  return true;
}

// All signals of this thread: a handler of the program could write to pages whose writes are held back.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    const uint64_t all = ~uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &former_, sizeof all);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &former_, nullptr, sizeof former_); }

 private:
  uint64_t former_ = 0;
};

// Writes the bytes of the range into `fd` at `offset`. Allocates nothing.
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

// Between hold() and wake() nothing may be written but the caller's stack.
bool move_chunk(HeldWrites& writes, int fd, uint64_t begin, uint64_t length) {
  // A page that is not there yet is not held.
  if (populate(begin, length, false) != 0 || !writes.hold(begin, length)) return false;
  if (!write_pages(fd, begin, length, begin) ||
      map(begin, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, begin) == MAP_FAILED) {
    writes.release(begin, length);
    return false;
  }
  writes.wake(begin, length);
  return true;
}

bool move_piece(HeldWrites& writes, int fd, const Piece& piece) {
  const auto [begin, end] = piece.range;
  if (!writes.prepare(begin, end - begin)) return false;
  for (uint64_t at = begin; at < end; at += kChunk)
    if (!move_chunk(writes, fd, at, std::min(kChunk, end - at))) return false;
  populate(begin, end - begin, true);  // as it was
  advise(piece.range, piece.advice);
  // A mapping of its own for the last page. libc's realloc(3) moves a block by a call of mremap(2) that no
  // hook sees, and a longer mapping would show pages of the file that are another block's. Of two mappings
  // the kernel moves none (EFAULT), and realloc() copies.
  if (!piece.is_of_break) syscall(SYS_madvise, end - page_size(), page_size(), MADV_RANDOM);
  return true;
}

// Private anonymous memory with the same bytes in the place of [begin, end). `like`: mapped there, its
// protection and advice are those of the whole range. False: there is no memory, or there are too many
// mappings; then nothing has changed.
bool give_back(uint64_t begin, uint64_t end, const MappedRange& like) {
  const uint64_t length = end - begin;
  void* const copy = map(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  const Advice advice = advice_of(like);
  const SignalsBlocked guard;
  bool moved;
  {
    // A kernel before 5.19 cannot hold writes to pages of a file back. It goes on all the same.
    HeldWrites writes;
    const bool held = writes.open() && writes.prepare(begin, length) && writes.hold(begin, length);
    if ((like.protection & PROT_READ) == 0) syscall(SYS_mprotect, begin, length, PROT_READ);
    memcpy(copy, reinterpret_cast<const void*>(begin), length);
    if (like.protection != (PROT_READ | PROT_WRITE)) syscall(SYS_mprotect, copy, length, like.protection);
    moved = syscall(SYS_mremap, copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, begin) != -1;
    if (!moved) {
      syscall(SYS_munmap, copy, length);
      if ((like.protection & PROT_READ) == 0) syscall(SYS_mprotect, begin, length, like.protection);
    }
    if (held) writes.wake(begin, length);
  }
  if (moved) advise({begin, end}, advice);
  return moved;
}

// As the above for the whole of `wanted`, which becomes one mapping: mremap(2) takes no more than one. False:
// it is not private memory with one protection throughout.
bool give_back_in_one(const PageRange& wanted, std::string_view text) {
  uint64_t next = wanted.begin;
  MappedRange first{};
  for (MappedRange range; next < wanted.end && take_range(&text, &range);) {
    if (range.end <= next) continue;
    if (range.begin > next || !(is_moved(range) || (range.inode == 0 && !range.shared))) return false;
    if (next == wanted.begin) first = range;
    if (range.protection != first.protection) return false;
    next = range.end;
  }
  if (next < wanted.end) return false;
  return give_back(wanted.begin, wanted.end, first);
}

// Frees the file's pages in [begin, end).
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

// Frees the pages of the file that no mapping in `text` shows. Mappings have their address as offset, and
// are listed in order.
void free_unmapped(const File& file, std::string_view text) {
  heap().moved.clear();
  const int fd = file.descriptor.fd();
  if (fd < 0) return;
  uint64_t next = 0;
  for (MappedRange range; take_range(&text, &range);) {
    if (!range.shared || !is_of(file, range)) continue;
    if (range.offset > next) free_pages(fd, next, range.offset);
    next = std::max(next, range.offset + (range.end - range.begin));
    remember({range.begin, range.end});
  }
  free_pages(fd, next, kFileSize);
}

const char* other_bookkeeper() {
  if (memcheck::is_running()) return "valgrind";
  for (const char* name : {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init", "__lsan_init"})
    if (dlsym(RTLD_DEFAULT, name) != nullptr) return "a sanitizer";
  return nullptr;
}

bool can_hold_writes() {
  HeldWrites writes;
  return writes.open();
}

}  // namespace

void allow_shared_heap(const HeapHooks& hooks) {
  const char* const wanted = getenv(kSharedHeapVariable);
  if (wanted == nullptr || strcmp(wanted, "1") != 0) return;
  Heap& the = heap();
  std::lock_guard lock(the.mutex);
  if (the.hooks.watch != nullptr) return;
  the.hooks = hooks;
  if (const char* const other = other_bookkeeper(); other != nullptr)
    VERBENA_ERROR(heap_not_shared, "--shared-heap is off in process %d: it runs under %s", getpid(), other);
  else if (!can_hold_writes())
    VERBENA_ERROR(
        heap_not_shared,
        "--shared-heap is off in process %d: the kernel gives no userfaultfd(2) with write protection",
        getpid());
  else
    the.allowed.store(true, std::memory_order_release);
}

bool is_shared_heap_allowed() { return heap().allowed.load(std::memory_order_acquire); }

bool move_to_shared_heap(uint64_t address, uint64_t length, bool (*may_hold)(void*, const PageRange&),
                         void* context) {
  const PageRange wanted = pages_of(address, length);
  Heap& the = heap();
  std::lock_guard lock(the.mutex);
  if (is_known(wanted)) return true;
  PageVector<Piece> pieces;
  if (!open_file() || !find_pieces(read_memory_map(needs_flags()), wanted, &pieces)) return false;
  if (pieces.empty()) return remember(wanted), true;
  // Memory that a device or io_uring_register(2) has pinned would stay with it.
  if (the.pieces >= kMostPieces || is_static(wanted) || memory_status("VmPin") > 0 ||
      !may_hold(context, wanted))
    return false;
  const int fd = the.files.back().descriptor.fd();
  the.hooks.watch(wanted.begin, wanted.end - wanted.begin);
  const SignalsBlocked guard;
  HeldWrites writes;
  if (!writes.open()) return false;
  for (const Piece& piece : pieces)
    if (!move_piece(writes, fd, piece)) return false;
  the.pieces += static_cast<unsigned>(
      std::count_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return !piece.is_of_break; }));
  remember(wanted);
  return true;
}

void return_from_shared_heap(uint64_t address, uint64_t length) {
  const PageRange wanted = pages_of(address, length);
  std::lock_guard lock(heap().mutex);
  const PageText text = read_memory_map(needs_flags());
  heap().moved.clear();
  if (give_back_in_one(wanted, text)) return;
  std::string_view rest = text;
  for (MappedRange range; take_range(&rest, &range);)
    if (is_moved(range) && overlaps(wanted, range.begin, range.end - range.begin))
      give_back(std::max(range.begin, wanted.begin), std::min(range.end, wanted.end), range);
}

int shared_heap_descriptor(dev_t device, ino_t inode) {
  Heap& the = heap();
  std::lock_guard lock(the.mutex);
  for (const File& file : the.files)
    if (file.device == device && file.inode == inode) return file.descriptor.fd();
  return -1;
}

void sweep_shared_heap() {
  Heap& the = heap();
  std::lock_guard lock(the.mutex);
  if (the.files.empty()) return;
  const PageText text = read_memory_map();
  const auto is_shared = [&](const File& file) {
    std::string_view rest = text;
    for (MappedRange range; take_range(&rest, &range);)
      if (range.shared && is_of(file, range)) return true;
    return false;
  };
  const size_t former = the.files.size() - (the.takes_pages ? 1 : 0);
  const auto last = the.files.begin() + static_cast<ptrdiff_t>(former);
  // What a fork has made private needs no descriptor.
  the.files.erase(std::remove_if(the.files.begin(), last, [&](const File& file) { return !is_shared(file); }),
                  last);
  if (the.takes_pages) free_unmapped(the.files.back(), text);
}

namespace {

// Of the pages in [changed.begin, changed.end). With the mutex held. std::bad_alloc: there is no memory for a
// list.
void free_unmapped_in(const PageRange& changed) {
  const File& file = heap().files.back();
  const PageText text = read_memory_map();
  uint64_t next = changed.begin;
  const auto free_up_to = [&](uint64_t end) {
    if (end <= next) return;
    free_pages(file.descriptor.fd(), next, end);
    forget({next, end});
  };
  std::string_view rest = text;
  for (MappedRange range; take_range(&rest, &range) && range.begin < changed.end;) {
    if (!range.shared || !is_of(file, range) || range.end <= next) continue;
    free_up_to(range.begin);
    next = range.end;
  }
  free_up_to(changed.end);
}

}  // namespace

bool free_unmapped_of_shared_heap(uint64_t address, uint64_t length) {
  Heap& the = heap();
  const std::unique_lock lock(the.mutex, std::try_to_lock);
  if (!lock) return false;
  if (!the.takes_pages) return true;
  try {
    free_unmapped_in(pages_of(address, length));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void begin_change_of_shared_heap() { heap().barrier.enter(); }
void end_change_of_shared_heap() { heap().barrier.leave(); }

PageVector<PageRange> begin_fork_of_shared_heap() {
  Heap& the = heap();
  the.mutex.lock();
  PageVector<PageRange> ranges;
  if (the.files.empty()) return ranges;
  the.barrier.close();
  try {
    the.at_fork = read_memory_map(needs_flags());
    std::string_view rest = the.at_fork;
    for (MappedRange range; take_range(&rest, &range);)
      if (range.shared && file_of(range) != nullptr && !has_flag(range, "dc"))
        ranges.push_back({range.begin, range.end});
  } catch (const std::bad_alloc&) {
    VERBENA_ERROR(
        heap_not_copied,
        "fork: registered memory stays shared between parent and child: there is no memory for a list of it");
    ranges.clear();
  }
  return ranges;
}

void make_private_for_fork(const PageVector<PageRange>& ranges) {
  Heap& the = heap();
  if (ranges.empty()) return the.barrier.open();
  const SignalsBlocked guard;
  std::string_view rest = the.at_fork;
  for (MappedRange range; take_range(&rest, &range);) {
    if (!range.shared || has_flag(range, "dc")) continue;
    const File* const file = file_of(range);
    const int fd = file != nullptr ? file->descriptor.fd() : -1;
    if (file == nullptr) continue;
    const uint64_t length = range.end - range.begin;
    // The program may have closed the descriptor.
    if (fd >= 0 &&
        map(range.begin, length, range.protection, MAP_PRIVATE | MAP_FIXED, fd, range.offset) != MAP_FAILED)
      advise({range.begin, range.end}, advice_of(range));
    else if (!give_back(range.begin, range.end, range))
      VERBENA_ERROR(
          heap_not_copied,
          "fork: [0x%llx, +%llu) stays shared between parent and child: there is no memory for a copy",
          static_cast<unsigned long long>(range.begin), static_cast<unsigned long long>(length));
  }
  // The pages of the file belong to parent and child from now on. Pages that move later go to another one.
  the.takes_pages = false;
  the.moved.clear();
  the.barrier.open();
}

void end_fork_of_shared_heap(bool in_child) {
  if (in_child) heap().barrier.reset();
  heap().at_fork.clear();
  heap().mutex.unlock();
}

}  // namespace verbena
