// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "adapter/advice.h"
#include "adapter/memcheck.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint64_t kChunk = 64 * 1024;
constexpr uint64_t kWantedSize = uint64_t{32} << 30;
constexpr uint64_t kMostDumped = uint64_t{64} << 20;
constexpr uint64_t kOwnKeysSize = sizeof(SharedMr) * uint64_t{kMaxMrsPerProcess};
constexpr uint64_t kLeastSize = kHeapOffset + (uint64_t{16} << 20);

// Blocks begin at pairs of cache lines, as completion entries do.
constexpr uint64_t line_up(uint64_t n) {
  return (n + 2 * kCacheLine - 1) / (2 * kCacheLine) * (2 * kCacheLine);
}

// The peers' segments that a program under valgrind has mapped. Their owners commit memory at any time, so
// that only at exit, before the leak check, the holes are taken out of what it reads.
class PeersUnderMemcheck {
 public:
  static void add(const SegmentView& view) {
    if (!memcheck::is_running()) return;
    std::lock_guard lock(mutex());
    views().push_back(view);
  }
  static void remove(const SegmentView& view) {
    if (!memcheck::is_running()) return;
    std::lock_guard lock(mutex());
    std::erase_if(views(), [&](const SegmentView& other) { return other.base() == view.base(); });
  }

 private:
  static std::mutex& mutex() {
    static auto* made = new std::mutex;  // they are used when static objects are gone
    return *made;
  }
  static std::vector<SegmentView>& views() {
    static auto* made = new std::vector<SegmentView>;
    return *made;
  }
  static void hide_holes(const SegmentView& view) {
    std::vector<unsigned char> present(kChunk);
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (uint64_t at = 0; at < view.size(); at += present.size() * page) {
      const uint64_t length = std::min(present.size() * page, view.size() - at);
      if (mincore(view.base() + at, length, present.data()) != 0) return;
      for (uint64_t chunk = 0; chunk < length; chunk += kChunk) {
        const auto first = present.begin() + static_cast<long>(chunk / page);
        const auto last = present.begin() + static_cast<long>(std::min(chunk + kChunk, length) / page);
        if (std::none_of(first, last, [](unsigned char word) { return (word & 1) != 0; }))
          memcheck::no_access(view.base() + at + chunk, std::min(kChunk, length - chunk));
      }
    }
  }
  [[gnu::destructor]] static void hide_holes_at_exit() {
    if (!memcheck::is_running()) return;
    std::lock_guard lock(mutex());
    for (const SegmentView& view : views()) hide_holes(view);
  }
};

}  // namespace

OwnSegment::~OwnSegment() {
  if (view_.base() != nullptr) munmap(view_.base(), view_.size());
  if (own_keys_ != nullptr) munmap(own_keys_, kOwnKeysSize);
  if (fd_ >= 0) close(fd_);
}

int OwnSegment::map_own_keys() {
  void* memory =
      mmap(nullptr, kOwnKeysSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return ENOMEM;
  own_keys_ = static_cast<SharedMr*>(memory);
  advise_kernel(memory, kOwnKeysSize, MADV_DONTDUMP);  // the shared entries say the same
  return 0;
}

int OwnSegment::create(uint64_t node_id, uint32_t slot, uint32_t slot_generation) {
  fd_ = memfd_create("verbena-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) return errno;
  if (int error = map_own_keys(); error != 0) return error;
  uint64_t size = kWantedSize;
  // Growing a file past RLIMIT_FSIZE raises SIGXFSZ (setrlimit(2)): stay below it.
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    while (size > limit.rlim_cur && size / 2 >= kLeastSize) size /= 2;
  // Peers map it, too, and this process maps theirs.
  constexpr uint64_t kShare = 16;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    while (size > limit.rlim_cur / kShare && size / 2 >= kLeastSize) size /= 2;
  void* memory = MAP_FAILED;
  for (; size >= kLeastSize; size /= 2) {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return errno;
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (memory != MAP_FAILED) break;
  }
  if (memory == MAP_FAILED) return ENOMEM;
  // The file cannot shrink, so no process that maps it can get SIGBUS.
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return errno;
  view_ = SegmentView(static_cast<std::byte*>(memory), size, own_keys_);
  advise_kernel(memory, size, MADV_DONTDUMP);  // it would make the kernel allocate all of it
  memcheck::no_access(memory, size);
  committed_.resize(size / kChunk);
  if (int error = commit(0, kQpTableOffset); error != 0) return error;
  auto* header = new (memory) SegmentHeader{};
  header->layout_version = kLayoutVersion;
  header->size = size;
  header->node_id = node_id;
  header->slot = slot;
  header->slot_generation = slot_generation;
  header->pid = getpid();
  header->explained = static_cast<uint32_t>(log_level);
  header->magic = kSegmentMagic;
  return 0;
}

int OwnSegment::commit(uint64_t offset, uint64_t size) {
  std::lock_guard lock(mutex_);
  return commit_locked(offset, size);
}

int OwnSegment::commit_locked(uint64_t offset, uint64_t size) {
  if (size == 0) return 0;
  const uint64_t first = offset / kChunk;
  const uint64_t last = (offset + size - 1) / kChunk;
  if (last >= committed_.size()) return ENOMEM;
  for (uint64_t chunk = first; chunk <= last;) {
    if (committed_[chunk]) {
      ++chunk;
      continue;
    }
    uint64_t end = chunk;
    while (end <= last && !committed_[end]) ++end;
    int result;
    do {
      result =
          fallocate(fd_, 0, static_cast<off_t>(chunk * kChunk), static_cast<off_t>((end - chunk) * kChunk));
    } while (result != 0 && errno == EINTR);
    if (result != 0) return ENOMEM;
    include_in_dumps(chunk * kChunk, (end - chunk) * kChunk);
    memcheck::defined(view_.base() + chunk * kChunk, (end - chunk) * kChunk);
    std::fill(committed_.begin() + static_cast<long>(chunk), committed_.begin() + static_cast<long>(end),
              true);
    chunk = end;
  }
  return 0;
}

void OwnSegment::include_in_dumps(uint64_t offset, uint64_t size) {
  if (size > kMostDumped - dumped_) return;
  if (advise_kernel(view_.base() + offset, size, MADV_DODUMP) == 0) dumped_ += size;
}

void OwnSegment::abandon() {
  std::lock_guard lock(mutex_);
  close(std::exchange(fd_, -1));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t used = std::min((fresh_ + page - 1) / page * page, view_.size());
  if (mmap(view_.base(), used, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    return;
  if (used != view_.size()) munmap(view_.base() + used, view_.size() - used);
  view_ = SegmentView(view_.base(), used, own_keys_);
}

uint64_t OwnSegment::allocate(uint64_t size) {
  if (size > view_.size()) return 0;  // and so rounding up cannot wrap
  size = line_up(std::max<uint64_t>(size, 1));
  std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->second < size) continue;
    const uint64_t offset = block->first;
    const uint64_t rest = block->second - size;
    free_.erase(block);
    if (rest != 0) free_.emplace(offset + size, rest);
    std::memset(view_.base() + offset, 0, size);
    return offset;
  }
  if (size > view_.size() - fresh_ || commit_locked(fresh_, size) != 0) return 0;
  const uint64_t offset = fresh_;
  fresh_ += size;
  return offset;
}

void OwnSegment::release(uint64_t offset, uint64_t size) {
  if (offset == 0) return;
  size = line_up(std::max<uint64_t>(size, 1));
  std::lock_guard lock(mutex_);
  auto [block, inserted] = free_.emplace(offset, size);
  if (auto next = std::next(block); next != free_.end() && offset + size == next->first) {
    block->second += next->second;
    free_.erase(next);
  }
  if (block != free_.begin()) {
    auto previous = std::prev(block);
    if (previous->first + previous->second == block->first) {
      previous->second += block->second;
      free_.erase(block);
    }
  }
}

PeerSegment::~PeerSegment() {
  PeersUnderMemcheck::remove(view_);
  if (view_.base() != nullptr) munmap(view_.base(), view_.size());
}

int PeerSegment::map(int fd, uint64_t node_id, uint32_t slot, uint32_t slot_generation, bool writable) {
  struct stat status;
  if (fstat(fd, &status) != 0) return errno;
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < kLeastSize) return EPROTO;
  if (const int seals = fcntl(fd, F_GET_SEALS); seals < 0 || (seals & F_SEAL_SHRINK) == 0) return EPROTO;
  // Not by the program's mmap(3), where the preload looks for memory of the program (boundary/watch.h).
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, fd, 0L));
  if (memory == MAP_FAILED) return errno;
  const auto* header = static_cast<const SegmentHeader*>(memory);
  if (header->magic != kSegmentMagic || header->layout_version != kLayoutVersion || header->size != size ||
      header->node_id != node_id || header->slot != slot || header->slot_generation != slot_generation) {
    munmap(memory, size);
    return EPROTO;
  }
  view_ = SegmentView(static_cast<std::byte*>(memory), size);
  advise_kernel(memory, size, MADV_DONTDUMP);  // it is the owner's
  PeersUnderMemcheck::add(view_);
  return 0;
}

}  // namespace verbena
