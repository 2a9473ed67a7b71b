// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/token_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace verbena::rdma_cm {
namespace {

// Restores errno.
class ErrnoKept {
 public:
  ErrnoKept() : saved_(errno) {}
  ~ErrnoKept() { errno = saved_; }

 private:
  int saved_;
};

// A write to a pipe without a reader raises SIGPIPE in the writing thread (pipe(7)), which may be the
// program's. Blocks the signal meanwhile, and consumes it if it was not pending before.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    if (raised_ && !was_pending_) {
      const timespec now = {};
      while (syscall(SYS_rt_sigtimedwait, &pipe_, nullptr, &now, sizeof(uint64_t)) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void raised() { raised_ = true; }

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
  bool raised_ = false;
};

}  // namespace

int TokenPipe::make(int flags, int* reader) {
  int ends[2];
  if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) return errno;
  struct stat status;
  int error = 0;
  if (fstat(ends[1], &status) != 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) error = errno;
  if (error == 0 && (flags & O_NONBLOCK) != 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) error = errno;
  if (error == 0 && (flags & O_CLOEXEC) == 0 && fcntl(ends[0], F_SETFD, 0) != 0) error = errno;
  if (error != 0) {
    for (const int end : ends) syscall(SYS_close, end);
    return error;
  }
  fd_ = ends[1];
  device_ = status.st_dev;
  inode_ = status.st_ino;
  *reader = ends[0];
  return 0;
}

void TokenPipe::close() {
  const ErrnoKept kept;
  if (verified()) syscall(SYS_close, fd_);
  fd_ = -1;
}

bool TokenPipe::verified() const {
  struct stat status;
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void TokenPipe::show(size_t events) {
  const ErrnoKept kept;
  int shown = 0;
  if (!verified() || ioctl(fd_, FIONREAD, &shown) != 0) return;
  const auto tokens = static_cast<size_t>(shown);
  if (tokens < events) add(events - tokens);
  if (tokens > events) take(tokens - events);
}

void TokenPipe::add(size_t count) {
  static constexpr char kTokens[256] = {};
  NoPipeSignal guard;
  while (count > 0) {
    const long written = syscall(SYS_write, fd_, kTokens, std::min(count, sizeof kTokens));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) guard.raised();
    if (written <= 0) return;
    count -= static_cast<size_t>(written);
  }
}

// Reads through a temporary reading end. A read of the program's end may block if another thread takes the
// token first. A permanent end of our own would hide that the program has closed its last one.
void TokenPipe::take(size_t count) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd_);
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  char tokens[256];
  while (count > 0) {
    const long taken = syscall(SYS_read, fd, tokens, std::min(count, sizeof tokens));
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) break;
    count -= static_cast<size_t>(taken);
  }
  syscall(SYS_close, fd);
}

}  // namespace verbena::rdma_cm
