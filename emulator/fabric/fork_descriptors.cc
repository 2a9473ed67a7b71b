// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/fork_descriptors.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>

namespace verbena {
namespace {

constexpr int kLimit = 65536;
std::atomic<uint64_t> kept[kLimit / 64];  // a bit for each

bool in_range(int fd) { return fd >= 0 && fd < kLimit; }
uint64_t bit(int fd) { return uint64_t{1} << (fd % 64); }

}  // namespace

void keep_from_children(int fd) {
  if (in_range(fd)) kept[fd / 64].fetch_or(bit(fd), std::memory_order_relaxed);
}

void no_longer_keep(int fd) {
  if (in_range(fd)) kept[fd / 64].fetch_and(~bit(fd), std::memory_order_relaxed);
}

void close_parent_descriptors() {
  for (int word = 0; word < kLimit / 64; ++word) {
    uint64_t bits = kept[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) close(word * 64 + std::countr_zero(bits));
  }
}

}  // namespace verbena
