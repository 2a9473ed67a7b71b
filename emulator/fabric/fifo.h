// SPDX-License-Identifier: BSD-2-Clause
//
// A named pipe of fixed-size records, for completion channels, asynchronous events and kicks. Its reader is a
// descriptor of the program (blocking or not, pollable). Its writers open it by name in the folder of its
// owner's slot (slot_folder.h).
//
// A writer verifies before each write that its descriptor is still the pipe. A program that closes
// descriptors it does not own (closefrom(3), dup2(2)) must not get our records in its files. No function here
// is a cancellation point.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace verbena {

// The writing end. It can also take records out again (when a CQ is destroyed).
class FifoEnd {
 public:
  FifoEnd() = default;
  FifoEnd(FifoEnd&& other) noexcept;
  FifoEnd& operator=(FifoEnd&& other) noexcept;
  ~FifoEnd() { close(); }

  // `name` in the folder `at`. errno; EPROTO: it is no FIFO.
  int make(int at, const char* name);  // mkfifoat(3), then open
  int open(int at, const char* name);  // ENOENT when the owner is gone
  void close();
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  // 0; EAGAIN: the pipe is full; EBADF: the program has closed our descriptor; EPIPE.
  int write(const void* record, size_t size) const;

  // Takes one record out. False: the pipe is empty or gone.
  bool read(void* record, size_t size) const;

  // True: `fd` is a descriptor of this pipe.
  bool is_same_pipe(int fd) const;

  // True: the pipe has lost its name, so its owner does not read it any more.
  bool is_abandoned() const;

  // A new descriptor of this pipe, which is at `path`, for reading: blocking, close-on-exec. -1 and errno;
  // EPROTO: another file is there.
  int open_reader(const std::string& path) const;

 private:
  bool verified() const;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena
