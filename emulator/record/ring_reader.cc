// SPDX-License-Identifier: BSD-2-Clause
#include "record/ring_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "fabric/descriptor.h"

namespace verbena::record {

int RingReader::open(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0) return errno;
  struct stat status;
  if (fstat(file.fd, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) return EPERM;
  const auto whole = static_cast<uint64_t>(status.st_size);
  if (whole < kRingHeaderSize + kSmallestRing) return EPROTO;
  const uint64_t size = whole - kRingHeaderSize;
  if (!std::has_single_bit(size) || size > kLargestRing) return EPROTO;
  if (const int error = ring_.map(file.fd, size, false); error != 0) return error;
  const RingHeader& header = ring_.header();
  if (std::atomic_ref(const_cast<uint32_t&>(header.magic)).load(std::memory_order_acquire) != kRingMagic ||
      header.version != kRingVersion || header.size != size)
    return EPROTO;
  file_ = status.st_ino;
  owner_.node_id = header.node_id;
  owner_.slot = header.slot;
  owner_.generation = header.generation;
  std::memcpy(owner_.program, header.program, sizeof owner_.program);
  owner_.pid = header.pid;
  return 0;
}

// A record a sixteenth of the ring ahead of the tail: so far a writer has to come before it disturbs again.
uint64_t RingReader::position_ahead(uint64_t head, uint64_t tail) const {
  const uint64_t wanted = tail + ring_.size() / 16;
  const uint64_t segment = wanted / (ring_.size() / kRingSegments) + 1;
  const uint64_t start = ring_.header().starts[segment % kRingSegments].load(std::memory_order_relaxed);
  return start >= wanted && start <= head && start % kAlignment == 0 ? start : tail;
}

RingReader::Next RingReader::append(std::vector<std::byte>* records) {
  const RingHeader& header = ring_.header();
  const size_t before = records->size();
  bool is_overtaken = false;
  for (int tries = 0; tries < 1000; ++tries) {
    const uint64_t tail = header.tail.load(std::memory_order_acquire);
    const uint64_t head = header.head.load(std::memory_order_acquire);
    // Between the two the writer may have gone any way on: they belong together if the tail is still there.
    if (header.tail.load(std::memory_order_relaxed) != tail) continue;
    if (tail > head || head - tail > ring_.size() || position_ > head) return Next::kDamaged;
    if (position_ < tail) position_ = is_overtaken ? position_ahead(head, tail) : tail;
    if (position_ == head) return Next::kNone;
    Head first;
    std::memcpy(&first, ring_.at(position_), sizeof first);
    const bool is_sound = first.size >= sizeof(Head) && first.size % kAlignment == 0 &&
                          first.size <= ring_.size() / 4 && first.size <= head - position_;
    if (is_sound) {
      const std::byte* const from = ring_.at(position_);
      records->resize(before);
      records->insert(records->end(), from, from + first.size);
    }
    // The copy counts if the writer has not come near it meanwhile.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (header.tail.load(std::memory_order_relaxed) > position_) {
      is_overtaken = true;
      continue;
    }
    if (!is_sound || first.number < expected_) {
      records->resize(before);
      return Next::kDamaged;
    }
    std::memcpy(records->data() + before, &first, sizeof first);
    lost_ += first.number - expected_;
    expected_ = first.number + 1;
    position_ += first.size;
    return Next::kRecord;
  }
  records->resize(before);
  return Next::kNone;  // the writer is faster: later
}

}  // namespace verbena::record
