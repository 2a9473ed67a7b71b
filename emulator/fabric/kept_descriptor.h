// SPDX-License-Identifier: BSD-2-Clause
//
// A descriptor that is kept for long in a process of others. The program may close descriptors that it does
// not own, and the number may then be another file's: each use verifies that it is still the same one.
// Forked children do not keep it (fork_descriptors.h).
#pragma once

#include <sys/types.h>

#include <utility>

namespace verbena {

class KeptDescriptor {
 public:
  KeptDescriptor() = default;
  KeptDescriptor(KeptDescriptor&& other) noexcept { *this = std::move(other); }
  KeptDescriptor& operator=(KeptDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
    return *this;
  }
  ~KeptDescriptor() { close(); }

  // Takes `fd` (-1: none), close-on-exec.
  void keep(int fd);
  void close();

  // -1: none, or the program has closed it.
  int fd() const { return verified() ? fd_ : -1; }

  // A new open file description of the same file with `flags` (open(2)), even if the file has no name any
  // more; close-on-exec. -1 and errno.
  int reopen(int flags) const;

 private:
  bool verified() const;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena
