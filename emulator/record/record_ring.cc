// SPDX-License-Identifier: BSD-2-Clause
#include "record/record_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "adapter/advice.h"
#include "adapter/clock.h"
#include "fabric/descriptor.h"

namespace verbena::record {

RingMapping& RingMapping::operator=(RingMapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

int RingMapping::map(int file, uint64_t size, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const size_t whole = kRingHeaderSize + 2 * size;
  void* const base = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return errno;
  auto* const begin = static_cast<std::byte*>(base);
  const auto place = [&](size_t offset, size_t length, off_t in_file) {
    return mmap(begin + offset, length, protection, MAP_SHARED | MAP_FIXED, file, in_file) != MAP_FAILED;
  };
  // madvise(2): without MADV_DONTFORK a child that is not ours would write into the ring of its parent.
  if (!place(0, kRingHeaderSize + size, 0) || !place(kRingHeaderSize + size, size, kRingHeaderSize) ||
      advise_kernel(base, whole, MADV_DONTFORK) != 0) {
    const int error = errno;
    munmap(base, whole);
    return error;
  }
  unmap();
  base_ = begin;
  size_ = size;
  return 0;
}

void RingMapping::unmap() {
  if (base_ != nullptr) munmap(base_, kRingHeaderSize + 2 * size_);
  base_ = nullptr;
}

void make_room(const std::string& folder, size_t most, bool (*is_alive)(void*, const std::string&),
               void* context) {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> dead;
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    ++count;
    std::error_code ignored;
    const auto time = file->last_write_time(ignored);
    if (!is_alive(context, file->path().filename().string())) dead.emplace_back(time, file->path());
  }
  std::sort(dead.begin(), dead.end());
  for (size_t i = 0; i < dead.size() && count >= most; ++i, --count)
    std::filesystem::remove(dead[i].second, error);
}

int RingWriter::open(const std::string& path, uint64_t size, const RingOwner& owner) {
  const Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (file.fd < 0) return errno;
  RingMapping ring;
  // fallocate(2): a file system that is full says so now, not by SIGBUS later.
  int error = posix_fallocate(file.fd, 0, static_cast<off_t>(kRingHeaderSize + size));
  struct stat status {};
  if (error == 0 && fstat(file.fd, &status) != 0) error = errno;
  if (error == 0) error = ring.map(file.fd, size, true);
  if (error != 0) {
    unlink(path.c_str());
    return error;
  }
  auto* const header = new (&ring.header()) RingHeader{};
  header->version = kRingVersion;
  header->size = size;
  header->node_id = owner.node_id;
  header->slot = owner.slot;
  header->generation = owner.generation;
  header->pid = getpid();
  memcpy(header->program, owner.program, sizeof header->program);
  std::atomic_ref(header->magic).store(kRingMagic, std::memory_order_release);
  header->is_written.store(1, std::memory_order_release);
  const bool can_be_owned = WriterLock::can_be_owned();
  const WriterLock::Hold hold = lock_.lock();
  std::swap(ring_, ring);
  head_ = tail_ = number_ = 0;
  starts_ = {};
  segment_end_ = size / kRingSegments;
  size_.store(size, std::memory_order_relaxed);
  file_.store(status.st_ino, std::memory_order_relaxed);
  if (can_be_owned)
    lock_.unlock_for_new_owner(hold);
  else
    lock_.unlock(hold);
  if (ring) ring.header().is_written.store(0, std::memory_order_release);  // the one before
  return 0;
}

void RingWriter::close() {
  RingMapping ring;
  const WriterLock::Hold hold = lock_.lock();
  std::swap(ring_, ring);
  size_.store(0, std::memory_order_relaxed);
  lock_.unlock(hold);
  if (ring) ring.header().is_written.store(0, std::memory_order_release);
}

void RingWriter::forget() {
  ring_.forget();
  size_.store(0, std::memory_order_relaxed);
  lock_.forget();
}

// To the first segment whose bytes the record does not need.
void RingWriter::move_tail() {
  const uint64_t needed = head_ + writing_ - ring_.size();
  tail_ = starts_[(needed / (ring_.size() / kRingSegments) + 1) % kRingSegments];
  ring_.header().tail.store(tail_, std::memory_order_release);
  // A reader that sees a byte of the new record sees the tail, too.
  std::atomic_thread_fence(std::memory_order_release);
}

// A long record passes several.
void RingWriter::begin_segment() {
  const uint64_t segment = ring_.size() / kRingSegments;
  for (; segment_end_ <= head_; segment_end_ += segment) {
    const size_t place = segment_end_ / segment % kRingSegments;
    starts_[place] = head_;
    ring_.header().starts[place].store(head_, std::memory_order_relaxed);
  }
}

}  // namespace verbena::record
