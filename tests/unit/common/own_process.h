// SPDX-License-Identifier: BSD-2-Clause
//
// What this process uses, according to the kernel (proc(5)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace verbena {

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// The number in the line `name` ("VmSize:", in KiB) of a process's or thread's status; 0: there is none.
inline uint64_t number_in_status(const std::filesystem::path& of, const std::string& name) {
  std::ifstream status(of / "status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stoull(line.substr(name.size()));
  return 0;
}

// How often the process's threads have gone to sleep.
inline uint64_t sleeps() {
  uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    sum += number_in_status(task.path(), "voluntary_ctxt_switches:");
  return sum;
}

// Does the thread (gettid(2)) of this process wait for something?
inline bool is_asleep(int thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("State:")) return line.find("S (sleeping)") != std::string::npos;
  return false;
}

}  // namespace verbena
