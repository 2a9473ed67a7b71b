// SPDX-License-Identifier: BSD-2-Clause
//
// The descriptor of an event channel: the reading end of a pipe with one byte, a token, for each event that
// waits. So the kernel does poll, select, epoll (edge-triggered as well), O_NONBLOCK, signals and
// cancellation.
//
// The program cannot write to its end (EBADF from any call). If the last copy of that end is closed, our end
// raises no SIGPIPE. Before each use our end is verified to be the pipe still: a program may close
// descriptors that it does not own.
//
// The owner of the events serialises the calls. They do not change errno, and are no cancellation points.
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

  // Sets the number of tokens in the pipe to `events`. A pipe holds 65,536, or 4,096 if its user has many
  // pipes (pipe(7)). Tokens that do not fit are added by a later call.
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
