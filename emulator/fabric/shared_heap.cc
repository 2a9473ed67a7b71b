// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/shared_heap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
#include "fabric/page_moves.h"
#include "fabric/shared_file.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint64_t kFileSize = uint64_t{1} << 57;  // bytes: more than any address; the file is sparse
// Each of them may cost three mappings (vm.max_map_count).
constexpr unsigned kMostPieces = 4096;

struct File {
  KeptDescriptor descriptor;
  dev_t device;
  ino_t inode;
  uint64_t page_size;  // bytes
  bool takes_pages;    // one file of each page size does: the youngest
  SparePage spare;     // for huge pages
};

struct Heap {
  std::mutex mutex;
  MappingBarrier barrier;  // closed while a fork replaces mappings
  std::atomic<bool> allowed{false};
  HeapHooks hooks{};
  PageVector<File> files;
  unsigned pieces = 0;
  PageVector<PageRange> moved;  // is in a file that takes pages, unless libc has unmapped it unseen; sorted
  PageText at_fork;             // the mappings, from the first call for a fork to the last
};

Heap& heap() {
  static Heap* const the_heap = new Heap;  // never destroyed: threads may outlive main()
  return *the_heap;
}

PageRange pages_of(uint64_t address, uint64_t length, uint64_t page = small_page()) {
  return {address & ~(page - 1), (address + length + page - 1) & ~(page - 1)};
}

bool is_of(const File& file, const MappedRange& range) {
  return range.inode == file.inode && range.device == file.device;
}

File* file_of(const MappedRange& range) {
  auto& files = heap().files;
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const File& file) { return is_of(file, range); });
  return found == files.end() ? nullptr : &*found;
}

// `status`: read_status().
bool needs_flags(std::string_view status = read_status()) {
  const Heap& the = heap();
  return (the.hooks.has_advised != nullptr && the.hooks.has_advised()) || memory_status(status, "VmLck") > 0;
}

// Remembers that the range is in a file that takes pages.
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
  return std::any_of(
             the.moved.begin(), the.moved.end(),
             [&](const PageRange& each) { return each.begin <= range.begin && range.end <= each.end; }) &&
         are_file_pages(range.begin, range.end - 1);
}

// What of `wanted` is to be moved. False: part of it is nothing that may be moved.
bool find_pieces(std::string_view text, const PageRange& wanted, PageVector<HeapPiece>* out) {
  uint64_t next = wanted.begin;
  MappedRange before{};
  for (MappedRange range; next < wanted.end && take_range(&text, &range); before = range) {
    if (range.end <= next) continue;
    if (range.begin > next) return false;
    const uint64_t end = std::min(range.end, wanted.end);
    const File* const file = range.shared && range.offset == range.begin ? file_of(range) : nullptr;
    if (file == nullptr || !file->takes_pages) {
      // Ordinary mappings have no other size, also in a list that does not show it.
      const uint64_t page = range.page_size == 0 ? small_page() : range.page_size;
      const PageRange whole = pages_of(next, end - next, page);
      if (!may_move(whole, range, before)) return false;
      out->push_back({whole, page, advice_of(range), range.path == "[heap]"});
    }
    next = end;
  }
  return next == wanted.end;
}

bool needs_page_sizes(std::string_view text, const PageRange& wanted) {
  for (MappedRange range; take_range(&text, &range) && range.begin < wanted.end;)
    if (range.end > wanted.begin && needs_page_size(range)) return true;
  return false;
}

PageText read_map_for(const PageRange& wanted, std::string_view status = read_status()) {
  PageText text = read_memory_map(needs_flags(status));
  if (needs_page_sizes(text, wanted)) text = read_memory_map(true);
  return text;
}

// The file that takes pages of that size. nullptr: there is none.
File* open_file(uint64_t page_size) {
  Heap& the = heap();
  for (File& file : the.files) {
    if (!file.takes_pages || file.page_size != page_size) continue;
    if (file.descriptor.fd() >= 0) return &file;
    file.takes_pages = false;
  }
  const bool huge = page_size != small_page();
  char name[64];
  snprintf(name, sizeof name, huge ? "%s-%llukB" : "%s", kHeapFile,
           static_cast<unsigned long long>(page_size / 1024));
  SparePage spare;
  if (huge && !spare.keep(page_size)) return nullptr;
  const int fd = make_memory_file(name, kFileSize, huge ? page_size : 0);
  if (fd < 0) return nullptr;
  struct stat status;
  if (fstat(fd, &status) != 0) {
    syscall(SYS_close, fd);
    return nullptr;
  }
  the.files.push_back({{}, status.st_dev, status.st_ino, page_size, true, std::move(spare)});
  the.files.back().descriptor.keep(fd);
  return &the.files.back();
}

uint64_t page_size_of(const MappedRange& range) {
  if (const File* const file = file_of(range); file != nullptr) return file->page_size;
  return range.page_size == 0 ? small_page() : range.page_size;
}

// The descriptor of a file whose pages are this process's alone. -1: none, or a child may have them too.
int own_pages_of(const File* file) {
  return file != nullptr && file->takes_pages ? file->descriptor.fd() : -1;
}

// give_back() for part of a mapping. `like`: it.
bool give_back_part(uint64_t begin, uint64_t end, const MappedRange& like) {
  File* const file = like.shared ? file_of(like) : nullptr;
  const SignalsBlocked guard;
  return give_back({begin, end}, page_size_of(like), like, own_pages_of(file),
                   file != nullptr ? &file->spare : nullptr);
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
    if (range.protection != first.protection || page_size_of(range) != page_size_of(first)) return false;
    next = range.end;
  }
  if (next < wanted.end) return false;
  const PageRange whole = pages_of(wanted.begin, wanted.end - wanted.begin, page_size_of(first));
  return give_back_part(whole.begin, whole.end, first);
}

// Frees the pages of the file that no mapping in `text` shows, and remembers the others. Mappings have their
// address as offset, and are listed in order.
void free_unmapped(const File& file, std::string_view text) {
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
  PageVector<HeapPiece> pieces;
  const PageText status = read_status();
  if (!find_pieces(read_map_for(wanted, status), wanted, &pieces)) return false;
  if (pieces.empty()) return remember(wanted), true;
  const PageRange all{std::min(wanted.begin, pieces.front().range.begin),
                      std::max(wanted.end, pieces.back().range.end)};
  // Memory that a device or io_uring_register(2) has pinned would stay with it.
  if (the.pieces >= kMostPieces || is_static(all) || memory_status(status, "VmPin") > 0 ||
      !may_hold(context, all))
    return false;
  PageVector<int> files;
  for (const HeapPiece& piece : pieces) {
    const File* const file = open_file(piece.page_size);
    if (file == nullptr) return false;
    files.push_back(file->descriptor.fd());
  }
  the.hooks.watch(all.begin, all.end - all.begin);
  const SignalsBlocked guard;
  HeldWrites writes;
  if (!writes.open()) return false;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (!move_piece(writes, files[i], pieces[i])) return false;
  the.pieces += static_cast<unsigned>(
      std::count_if(pieces.begin(), pieces.end(), [](const HeapPiece& piece) { return !piece.is_of_break; }));
  remember(wanted);
  return true;
}

void return_from_shared_heap(uint64_t address, uint64_t length) {
  const PageRange wanted = pages_of(address, length);
  std::lock_guard lock(heap().mutex);
  const PageText text = read_map_for(wanted);
  heap().moved.clear();
  if (give_back_in_one(wanted, text)) return;
  std::string_view rest = text;
  for (MappedRange range; take_range(&rest, &range);)
    if (is_moved(range) && overlaps(wanted, range.begin, range.end - range.begin)) {
      const uint64_t begin = std::max(range.begin, wanted.begin), end = std::min(range.end, wanted.end);
      const PageRange whole = pages_of(begin, end - begin, page_size_of(range));
      give_back_part(whole.begin, whole.end, range);
    }
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
  // What a fork has made private needs no descriptor. A file of huge pages costs one; a peer that is stopped
  // may have it mapped for long.
  const auto is_needless = [&](const File& file) {
    if (is_shared(file) || (file.takes_pages && file.page_size == small_page())) return false;
    if (const int fd = own_pages_of(&file); fd >= 0) free_pages(fd, 0, kFileSize);
    return true;
  };
  the.files.erase(std::remove_if(the.files.begin(), the.files.end(), is_needless), the.files.end());
  the.moved.clear();
  for (const File& file : the.files)
    if (file.takes_pages) free_unmapped(file, text);
}

namespace {

// Of the pages in [changed.begin, changed.end). With the mutex held. std::bad_alloc: there is no memory for a
// list.
void free_unmapped_in(const File& file, std::string_view rest, const PageRange& changed) {
  uint64_t next = changed.begin;
  const auto free_up_to = [&](uint64_t end) {
    if (end <= next) return;
    free_pages(file.descriptor.fd(), next, end);
    forget({next, end});
  };
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
  if (std::none_of(the.files.begin(), the.files.end(), [](const File& file) { return file.takes_pages; }))
    return true;
  try {
    const PageText text = read_memory_map();
    for (const File& file : the.files)
      if (file.takes_pages) free_unmapped_in(file, text, pages_of(address, length, file.page_size));
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
  // Read again: the peers have been waited for since. Meanwhile libc, whose own calls the barrier does not
  // see, may have unmapped memory, and mapped other memory at its place.
  try {
    the.at_fork = read_memory_map(needs_flags());
  } catch (const std::bad_alloc&) {
  }
  std::string_view rest = the.at_fork;
  for (MappedRange range; take_range(&rest, &range);) {
    if (!range.shared || has_flag(range, "dc")) continue;
    File* const file = file_of(range);
    if (file == nullptr) continue;
    const PageRange whole{range.begin, range.end};
    const uint64_t length = range.end - range.begin;
    const int fd = file->descriptor.fd();  // -1: the program has closed it
    if (fd >= 0 && map_private(whole, file->page_size, range, fd))
      advise(whole, advice_of(range));
    else if (!give_back(whole, file->page_size, range, own_pages_of(file), &file->spare))
      VERBENA_ERROR(
          heap_not_copied,
          "fork: [0x%llx, +%llu) stays shared between parent and child: there is no memory for a copy",
          static_cast<unsigned long long>(range.begin), static_cast<unsigned long long>(length));
  }
  // The pages of a file belong to parent and child from now on. Pages that move later go to another one.
  // An older file gives no page back (own_pages_of()) and needs none spare.
  for (File& file : the.files) file.takes_pages = false, file.spare = {};
  the.moved.clear();
  the.barrier.open();
}

void end_fork_of_shared_heap(bool in_child) {
  if (in_child) {
    heap().barrier.reset();
    for (File& file : heap().files) file.spare.take();  // the parent's
  }
  heap().at_fork.clear();
  heap().mutex.unlock();
}

}  // namespace verbena
