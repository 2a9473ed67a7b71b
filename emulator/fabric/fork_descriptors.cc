// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/fork_descriptors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>

namespace verbena {
namespace {

constexpr int kLimit = 65536;
std::atomic<uint64_t> kept[kLimit / 64];   // a bit for each
std::atomic<uint64_t> identities[kLimit];  // of those that are kept

bool in_range(int fd) { return fd >= 0 && fd < kLimit; }
uint64_t bit(int fd) { return uint64_t{1} << (fd % 64); }

// The same number can be another file later, if the program closes descriptors that it does not own.
uint64_t identity_of(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino ^ status.st_dev << 48 : 0;
}

void close_kept_descriptor(int fd) {
  if (identity_of(fd) == identities[fd].load(std::memory_order_relaxed)) close(fd);
}

}  // namespace

void keep_from_children(int fd) {
  if (!in_range(fd)) return;
  identities[fd].store(identity_of(fd), std::memory_order_relaxed);
  kept[fd / 64].fetch_or(bit(fd), std::memory_order_release);
}

void no_longer_keep(int fd) {
  if (in_range(fd)) kept[fd / 64].fetch_and(~bit(fd), std::memory_order_relaxed);
}

void close_parent_descriptors() {
  for (int word = 0; word < kLimit / 64; ++word) {
    uint64_t bits = kept[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) close_kept_descriptor(word * 64 + std::countr_zero(bits));
  }
}

}  // namespace verbena
