// SPDX-License-Identifier: BSD-2-Clause
//
// A device file, claimed as the provider claims it; its handler records what it gets.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "boundary/claim.h"

namespace verbena::testing {

inline constexpr char kDevice[] = "/dev/infiniband/uverbs0";

inline int claim(int fd, const verbena_boundary_handler& handler) {
  static const auto function =
      reinterpret_cast<verbena_boundary_claim_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_claim"));
  return function(fd, &handler);
}

inline void release(int fd) {
  static const auto function =
      reinterpret_cast<verbena_boundary_release_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_release"));
  function(fd);
}

// Counts commands; remembers the last one, if only one thread writes at a time.
struct Recorder {
  std::atomic<int> commands{0};
  std::string last;

  verbena_boundary_handler handler() { return {&Recorder::take, this}; }
  static ssize_t take(void* owner, const void* command, size_t length) {
    auto* self = static_cast<Recorder*>(owner);
    self->last.assign(static_cast<const char*>(command), length);
    self->commands.fetch_add(1);
    return static_cast<ssize_t>(length);
  }
};

inline int open_device() {
  const int fd = open(kDevice, O_RDWR | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  return fd;
}

class ClaimedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    fd_ = open_device();
    ASSERT_EQ(claim(fd_, recorder_.handler()), 0);
  }
  void TearDown() override {
    release(fd_);
    close(fd_);
  }
  bool answers() {
    const int before = recorder_.commands.load();
    return write(fd_, "command", 7) == 7 && recorder_.commands.load() == before + 1;
  }

  int fd_ = -1;
  Recorder recorder_;
};

}  // namespace verbena::testing
