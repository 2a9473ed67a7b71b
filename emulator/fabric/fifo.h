// SPDX-License-Identifier: BSD-2-Clause
//
// A named pipe of fixed-size records, as completion channels, asynchronous events and kicks use it: its reader
// is a descriptor of the program's (blocking or not, pollable), its writers open it by name.
//
// The descriptor of a writer is verified before each write to be the pipe still: a program that closes
// descriptors it does not own (closefrom(3), dup2(2)) must not find our records in its files. No function here
// is a cancellation point.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace verbena {

// The writing end; also able to take records out again (destroying a CQ).
class FifoEnd {
 public:
  FifoEnd() = default;
  FifoEnd(FifoEnd&& other) noexcept;
  FifoEnd& operator=(FifoEnd&& other) noexcept;
  ~FifoEnd() { close(); }

  int make(const std::string& path);  // mkfifo(3), then open; errno
  int open(const std::string& path);  // errno; ENOENT when the owner is gone
  void close();
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  // 0; EAGAIN: the pipe is full; EBADF: the descriptor has been taken away from us; EPIPE.
  int write(const void* record, size_t size) const;

  // Takes one record out if there is one. False: there is none (or the pipe is gone).
  bool read(void* record, size_t size) const;

  // Is `fd` a descriptor of this pipe?
  bool is_same_pipe(int fd) const;

  // Has the pipe lost its name? Its owner does not read it any more.
  bool is_orphaned() const;

  // A new descriptor for reading, blocking, close-on-exec; -1 and errno.
  static int open_reader(const std::string& path);

 private:
  bool verified() const;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena
