// SPDX-License-Identifier: BSD-2-Clause
//
// One TCP connection (or unix stream) between two adapters: a non-blocking socket, the received bytes that
// are not parsed yet, and the bytes to be sent. Both buffers have a fixed size. Frames that do not fit wait
// at the user.
//
// The two directions are separate (InStream, OutStream), with separate locks, which belong to the user.
// Neither blocks, raises SIGPIPE or is a cancellation point.
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
  kFault,  // a range of the caller is not mapped; nothing has moved
};

// Detects a machine that is gone. TCP ends the connection (tcp(7)) if data stay unacknowledged, or the peer
// stays silent, for the time set here. A stream that is not TCP (in tests) has no such option.
void notice_silence(int fd);

// ---- receiving ----------------------------------------------------------------------------------------

class InStream {
 public:
  // Frames of up to this many bytes are received here as a whole. The bytes of longer ones go to their
  // destination.
  static constexpr size_t kCapacity = 128 * 1024;

  InStream();  // throws std::bad_alloc
  const std::byte* data() const { return bytes_.get() + begin_; }
  size_t size() const { return end_ - begin_; }
  void consume(size_t count);  // count <= size()
  void clear() { begin_ = end_ = 0; }

  // Receives available bytes, as many as fit, at most `most`. *all: the socket had fewer.
  Flow receive(int fd, size_t most, bool* all);

  // Receives into `ranges` (at most kMaxRanges, `size` bytes in sum). Of the bytes after that, at most
  // `taste` go into the buffer, which must be empty: the next frame may also be a large one, whose bytes
  // belong elsewhere. *moved: bytes that went into the ranges.
  static constexpr size_t kMaxRanges = 66;
  Flow receive_into(int fd, const iovec* ranges, size_t count, size_t size, size_t taste, size_t* moved);

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// ---- sending ------------------------------------------------------------------------------------------

// Frames are composed in a buffer. One of them may be a bulk frame, whose bytes stay where they are: in the
// program's memory, which the sender looks up each time (`Ranges`).
class OutStream {
 public:
  static constexpr size_t kCapacity = 256 * 1024;
  static constexpr size_t kMaxRanges = 64;

  // Gives the bulk frame's bytes from `done` on: at most kMaxRanges ranges, at least one byte. Returns the
  // number of ranges.
  using Ranges = size_t (*)(void* context, uint64_t done, iovec* ranges);

  OutStream();  // throws std::bad_alloc
  size_t room() const { return kCapacity - (end_ - begin_); }
  // Space for `size` more bytes at the end, for the caller to fill. nullptr: there is none.
  std::byte* append(size_t size);
  // Gives back the last `size` bytes that append() returned.
  void take_back(size_t size) { end_ -= size; }
  // After its head has been appended: announces `size` bytes that follow from elsewhere. Not while
  // has_bulk().
  void begin_bulk(uint64_t size);
  bool has_bulk() const { return bulk_left_ != 0; }
  bool empty() const { return begin_ == end_ && bulk_left_ == 0; }
  size_t gathered() const { return end_ - begin_; }
  void clear();

  // Sends what the socket takes. kMoved: everything is sent. kLater: the rest waits until the socket is
  // writable. kFault: part of the bulk frame's bytes is not mapped; `ranges` may return other ranges for them
  // at the next call. *sent is increased by the number of bytes sent.
  Flow send(int fd, Ranges ranges, void* context, uint64_t* sent);

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t bulk_at_ = 0;  // position in the buffer: bytes before it precede the bulk frame's bytes
  uint64_t bulk_size_ = 0;
  uint64_t bulk_left_ = 0;
};

}  // namespace verbena::wire
