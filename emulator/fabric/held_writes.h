// SPDX-License-Identifier: BSD-2-Clause
//
// Holds back the writes of all threads to a range of this process's memory for a moment (userfaultfd(2),
// write protection): a thread that writes there waits in the kernel until the range is released. Without the
// privilege for all faults (vm.unprivileged_userfaultfd) this is so for the program's own instructions, and a
// system call that writes there fails with EFAULT.
#pragma once

#include <cstdint>

namespace verbena {

class HeldWrites {
 public:
  HeldWrites() = default;
  HeldWrites(const HeldWrites&) = delete;
  HeldWrites& operator=(const HeldWrites&) = delete;
  // Releases what is held.
  ~HeldWrites();

  // False: the kernel has none of this (before 5.7), or a filter forbids it (seccomp(2)).
  bool open();

  // For the functions below: whole pages. Not those that the calling thread itself may write to: it would
  // wait for itself. The caller blocks signals.
  //
  // Prepares a mapping for hold(). False: of a kind that the kernel cannot protect, or a userfaultfd of the
  // program watches it.
  bool prepare(uint64_t begin, uint64_t length);
  bool hold(uint64_t begin, uint64_t length);
  void release(uint64_t begin, uint64_t length);
  // After the mapping has been replaced by another one.
  void wake(uint64_t begin, uint64_t length);

 private:
  int fd_ = -1;
};

}  // namespace verbena
