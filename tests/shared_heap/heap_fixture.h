// SPDX-License-Identifier: BSD-2-Clause
//
// Memory that has been registered under --shared-heap, and what the kernel says of it (proc(5)).
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "common/in_child.h"
#include "fixture.h"

namespace verbena::test {

inline constexpr size_t kPage = 4096;

class HeapTest : public PdTest {
 protected:
  // Private anonymous memory of the program.
  static uint8_t* map_pages(size_t pages, int flags = 0) {
    void* const memory =
        mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    EXPECT_NE(memory, MAP_FAILED) << strerror(errno);
    return static_cast<uint8_t*>(memory);
  }
  // The byte that fill() writes to place `i`.
  static uint8_t pattern(size_t i) { return static_cast<uint8_t>(i * 7 + i / 251); }
  static void fill(uint8_t* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes[i] = pattern(i);
  }
  static bool is_filled(const uint8_t* bytes, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      if (bytes[i] != pattern(i)) return false;
    return true;
  }
  static bool is_zero(const uint8_t* bytes, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      if (bytes[i] != 0) return false;
    return true;
  }
  Mr register_memory(void* memory, size_t size) {
    Mr mr(ibv_reg_mr(pd_.get(), memory, size, kAllAccess));
    EXPECT_NE(mr, nullptr) << strerror(errno);
    return mr;
  }
  // Filled and registered: peers could map it.
  Mr register_filled(uint8_t* memory, size_t size) {
    fill(memory, size);
    Mr mr = register_memory(memory, size);
    EXPECT_TRUE(is_shared(memory, size));
    return mr;
  }

  // The line of /proc/self/maps for `address`; "": not mapped.
  static std::string mapping_of(const void* address) {
    std::ifstream maps("/proc/self/maps");
    const auto at = reinterpret_cast<uintptr_t>(address);
    for (std::string line; std::getline(maps, line);) {
      uintptr_t begin = 0, end = 0;
      if (sscanf(line.c_str(), "%zx-%zx", &begin, &end) == 2 && begin <= at && at < end) return line;
    }
    return "";
  }
  static bool is_shared(const void* address) {
    const std::string line = mapping_of(address);
    return line.find("/memfd:verbena-heap") != std::string::npos && line.find("s ") != std::string::npos;
  }
  static bool is_shared(const uint8_t* address, size_t size) {
    for (size_t i = 0; i < size; i += kPage)
      if (!is_shared(address + i)) return false;
    return is_shared(address + size - 1);
  }
  // A figure of /proc/self/status, in KiB.
  static long status(const std::string& name) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
      if (line.rfind(name + ":", 0) == 0) return std::stol(line.substr(name.size() + 1));
    return -1;
  }
  // KiB that the files of the heap have.
  static long heap_size() {
    long sum = 0;
    DIR* const folder = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(folder)) {
      char target[64] = "";
      if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) <= 0) continue;
      struct stat file;
      if (strncmp(target, "/memfd:verbena-heap", 19) == 0 &&
          fstatat(dirfd(folder), entry->d_name, &file, 0) == 0)
        sum += file.st_blocks / 2;
    }
    closedir(folder);
    return sum;
  }
  // Does the kernel read a byte at `address` (write(2))?
  static bool kernel_reads(const void* address) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const bool written = write(ends[1], address, 1) == 1;
    EXPECT_TRUE(written || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return written;
  }
  // And writes one (read(2))?
  static bool kernel_writes(void* address) {
    const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const bool got = read(zero, address, 1) == 1;
    EXPECT_TRUE(got || errno == EFAULT);
    close(zero);
    return got;
  }
};

}  // namespace verbena::test
