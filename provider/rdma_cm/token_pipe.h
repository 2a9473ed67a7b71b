// SPDX-License-Identifier: BSD-2-Clause
//
// What a program holds of an event channel: the reading end of a pipe with one byte, a token, for each event
// that waits. So poll, select, epoll (edges too), O_NONBLOCK, signals and cancellation are the kernel's own.
//
// The program cannot write to its end (EBADF, by whatever call); where its last copy is closed, ours raises
// no SIGPIPE. Our end is verified before each use to be the pipe still: a program may close what it does not
// own.
//
// The owner of the events serialises the calls. errno is left alone; no cancellation points.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace verbena::rdma_cm {

class TokenPipe {
 public:
  TokenPipe() = default;
  TokenPipe(const TokenPipe&) = delete;
  TokenPipe& operator=(const TokenPipe&) = delete;
  ~TokenPipe() { close(); }

  // `flags` as of open(2): O_CLOEXEC, O_NONBLOCK. *reader is the program's. EMFILE, ENFILE.
  int make(int flags, int* reader);
  void close();
  int write_end() const { return fd_; }

  // Makes the tokens in the pipe as many as `events`: adds what is missing, takes out what is too much. A
  // pipe holds 65,536, or 4,096 when its user has many pipes (pipe(7)); what finds no room comes with a later
  // call.
  void show(size_t events);

 private:
  bool verified() const;
  void add(size_t count);
  void take(size_t count);

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena::rdma_cm
