// SPDX-License-Identifier: BSD-2-Clause
//
// One TCP connection (or unix stream) between two adapters: a non-blocking socket, what has been received and
// not been looked at, and what is to be sent. Of fixed size: what does not fit waits with whoever has it.
//
// The two directions are apart (InStream, OutStream): they have locks of their own, which are the caller's.
// Neither waits, raises SIGPIPE or is a cancellation point.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace verbena::wire {

enum class Flow : uint8_t {
  kMoved,  // some bytes
  kLater,  // none now
  kEnded,  // the connection is broken, or the other end has closed it
  kFault,  // a range of the caller's is not mapped; nothing has moved
};

// A machine that is gone says nothing: what TCP has not had acknowledged for so long, or who has been silent
// for so long, ends the connection (tcp(7)). Not TCP in tests: there is nothing to set then.
void notice_silence(int fd);

// ---- receiving ----------------------------------------------------------------------------------------

class InStream {
 public:
  // Frames whose bytes come up to so many are received here as a whole; longer ones go where they belong.
  static constexpr size_t kCapacity = 128 * 1024;

  InStream();  // throws std::bad_alloc
  const std::byte* data() const { return bytes_.get() + begin_; }
  size_t size() const { return end_ - begin_; }
  void consume(size_t count);  // count <= size()
  void clear() { begin_ = end_ = 0; }

  // Receives what has come, as far as there is room, at most `most` bytes. *all: there were fewer.
  Flow receive(int fd, size_t most, bool* all);

  // Receives into `ranges` (at most kMaxRanges, `size` bytes in sum), and of what comes behind them at most
  // `taste` bytes into the buffer, which must be empty: what follows a large frame may be another one, whose
  // bytes belong elsewhere. *moved: bytes that went into the ranges.
  static constexpr size_t kMaxRanges = 66;
  Flow receive_into(int fd, const iovec* ranges, size_t count, size_t size, size_t taste, size_t* moved);

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// ---- sending ------------------------------------------------------------------------------------------

// Frames are put together in a buffer. One of them may be a bulk frame, whose bytes stay where they are: in
// the memory of the program, which whoever sends them finds again each time (`Ranges`).
class OutStream {
 public:
  static constexpr size_t kCapacity = 256 * 1024;
  static constexpr size_t kMaxRanges = 64;

  // The bulk frame's bytes from `done` on, at most kMaxRanges of them, at least one byte; the number of
  // ranges.
  using Ranges = size_t (*)(void* context, uint64_t done, iovec* ranges);

  OutStream();  // throws std::bad_alloc
  size_t room() const { return kCapacity - (end_ - begin_); }
  // Room for `size` more bytes behind all others, to be filled by the caller; nullptr: there is none.
  std::byte* append(size_t size);
  // Gives back the last `size` bytes that append() gave.
  void take_back(size_t size) { end_ -= size; }
  // After its head has been appended: `size` bytes follow from elsewhere. Not while has_bulk().
  void begin_bulk(uint64_t size);
  bool has_bulk() const { return bulk_left_ != 0; }
  bool empty() const { return begin_ == end_ && bulk_left_ == 0; }
  size_t gathered() const { return end_ - begin_; }
  void clear();

  // Sends what can be sent. kMoved: everything has gone; kLater: the rest waits for the socket to become
  // writable; kFault: of the bulk frame's bytes; the caller may answer other ranges then. *sent grows by what
  // has been sent.
  Flow send(int fd, Ranges ranges, void* context, uint64_t* sent);

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t bulk_at_ = 0;  // in the buffer: what stands before it goes before the bulk frame's bytes
  uint64_t bulk_size_ = 0;
  uint64_t bulk_left_ = 0;
};

}  // namespace verbena::wire
