// SPDX-License-Identifier: BSD-2-Clause
//
// A file descriptor with RAII ownership.
#pragma once

#include <unistd.h>

#include <utility>

namespace verbena {

struct Descriptor {
  Descriptor() = default;
  explicit Descriptor(int given) : fd(given) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  void reset(int other = -1) {
    if (fd >= 0) close(fd);
    fd = other;
  }
  int release() { return std::exchange(fd, -1); }  // the caller's from now on

  int fd = -1;
};

}  // namespace verbena
