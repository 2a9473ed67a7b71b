// SPDX-License-Identifier: BSD-2-Clause
//
// The ring that a process writes its records into, a file that outlives it:
//
//   <node>/records/<slot>.<generation>     one page RingHeader, then `size` bytes of records
//
// The newest records overwrite the oldest; the writer never waits for a reader. Any number of readers follow,
// each with a position of its own. Positions are bytes since the ring was made; position p lies at p % size,
// and a record may run across the end of the file. Readers and writer map the records twice in a row, so that
// it does not matter.
//
// The process may be killed between any two instructions: `tail` passes a record before it is overwritten,
// `head` passes a record after it is complete. The tail moves by whole segments of the ring, so that most
// records cost their own bytes and one cache line of the header.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "adapter/cycle_clock.h"
#include "record/record.h"
#include "record/writer_lock.h"

namespace verbena::record {

inline constexpr uint32_t kRingMagic = 0x47'4e'52'56;  // "VRNG"
inline constexpr uint32_t kRingVersion = 2;
inline constexpr size_t kRingHeaderSize = 4096;
inline constexpr uint64_t kSmallestRing = 1 << 20, kLargestRing = 1 << 30;
inline constexpr uint64_t kRingSegments = 64;
// The end of the name of a ring that is being made. Readers leave it alone.
inline constexpr char kFreshRing[] = ".new";

struct RingHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t size;  // bytes of records, a power of two
  uint64_t node_id;
  uint32_t slot, generation;
  int32_t pid;
  char program[20];  // of which Slot has 16
  // Written by the process for each record.
  alignas(64) std::atomic<uint64_t> head;  // where the next record goes
  std::atomic<uint64_t> tail;              // of the oldest record that is still there
  std::atomic<uint32_t> is_written;        // 0: the process has closed the ring
  // Where the first record begins that begins in the segment, or behind it: by the number of the segment,
  // modulo kRingSegments. For readers that have to skip records.
  alignas(64) std::atomic<uint64_t> starts[kRingSegments];
};
static_assert(sizeof(RingHeader) <= kRingHeaderSize);

// Two mappings of `size` bytes of a file from kRingHeaderSize on, one after the other, and its header.
class RingMapping {
 public:
  RingMapping() = default;
  RingMapping(const RingMapping&) = delete;
  RingMapping& operator=(const RingMapping&) = delete;
  RingMapping(RingMapping&& other) noexcept { *this = static_cast<RingMapping&&>(other); }
  RingMapping& operator=(RingMapping&& other) noexcept;
  ~RingMapping() { unmap(); }

  // Maps the open file; a child of fork(2) does not get the mapping. errno. The descriptor stays the
  // caller's.
  int map(int file, uint64_t size, bool writable);
  void unmap();
  // After fork(2), in the child: the mapping is not there.
  void forget() { base_ = nullptr; }

  explicit operator bool() const { return base_ != nullptr; }
  RingHeader& header() const { return *reinterpret_cast<RingHeader*>(base_); }
  uint64_t size() const { return size_; }
  std::byte* at(uint64_t position) const { return base_ + kRingHeaderSize + (position & (size_ - 1)); }

 private:
  std::byte* base_ = nullptr;
  uint64_t size_ = 0;
};

// Removes the oldest rings of dead processes in `folder`, so that with a new one there are at most `most`.
// Rings of living processes stay. `is_alive(name)`: of the process with that ring.
void make_room(const std::string& folder, size_t most,
               bool (*is_alive)(void* context, const std::string& name), void* context);

struct RingOwner {
  uint64_t node_id = 0;
  uint32_t slot = 0, generation = 0;
  char program[20] = "";
  int32_t pid = 0;
};

// The writer of this process. Any thread may write; one writes at a time.
class RingWriter {
 public:
  // Makes the file `path`, which must not exist, and writes there from now on. Its memory is reserved now.
  // The ring before is closed. errno; then nothing has changed.
  int open(const std::string& path, uint64_t size, const RingOwner& owner);
  // Nothing is written any more.
  void close();
  // After fork(2), in the child.
  void forget();

  // Bytes of records; 0: closed.
  uint64_t size() const { return size_.load(std::memory_order_relaxed); }
  // The longest record.
  uint64_t limit() const { return size() / 4; }
  // The inode of the file that was opened last.
  uint64_t file() const { return file_.load(std::memory_order_relaxed); }

  // Writes a record of `size` bytes: fill(Head*) writes all but its head. Nothing if the writer is closed or
  // the record is too long.
  template <typename Fill>
  void write(Kind kind, size_t size, Fill fill) {
    const WriterLock::Hold hold = lock_.lock();
    if (Head* const head = begin(kind, size); head != nullptr) {
      fill(head);
      commit();
    }
    lock_.unlock(hold);
  }
  // Writes `record`, all but its head, and `payload` bytes after it, which fill(std::byte*) writes.
  template <typename Record, typename Fill>
  void write(const Record& record, size_t payload, Fill fill) {
    write(Record::kKind, sizeof record + payload, [&](Head* head) {
      const Head written = *head;
      auto* const to = reinterpret_cast<Record*>(head);
      *to = record;
      to->head = written;
      fill(reinterpret_cast<std::byte*>(to + 1));
    });
  }

 private:
  Head* begin(Kind kind, size_t size) {
    if (!ring_ || size > ring_.size() / 4 || size < sizeof(Head)) [[unlikely]]
      return nullptr;
    writing_ = (size + kAlignment - 1) & ~(kAlignment - 1);
    if (head_ + writing_ - tail_ > ring_.size()) [[unlikely]]
      move_tail();
    auto* const head = reinterpret_cast<Head*>(ring_.at(head_));
    *head = {static_cast<uint32_t>(writing_), kind, 0, number_, clock_.now()};
    return head;
  }
  void commit() {
    head_ += writing_;
    ++number_;
    if (head_ >= segment_end_) [[unlikely]]
      begin_segment();
    ring_.header().head.store(head_, std::memory_order_release);
  }
  void move_tail();
  void begin_segment();

  WriterLock lock_;
  RingMapping ring_;
  CycleClock clock_;
  std::atomic<uint64_t> size_{0}, file_{0};
  // As in the header, which others can damage.
  uint64_t head_ = 0, tail_ = 0, number_ = 0;
  std::array<uint64_t, kRingSegments> starts_{};
  uint64_t writing_ = 0;      // bytes of the record from begin() to commit()
  uint64_t segment_end_ = 0;  // of the segment that the next record begins in
};

}  // namespace verbena::record
