// SPDX-License-Identifier: BSD-2-Clause
//
// Support for planted faults. Each copy that has an edit (edits/, docs/TESTING.md) includes this file first.
// The adapter's own sources never do.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/memory_table.h"

namespace verbena {

// The faults that VERBENA_MUTANT names, with commas between them: several only of a variant that is a whole
// device. Never destroyed: threads ask until the process ends.
inline const std::vector<std::string>& chosen_faults() {
  static const auto* const list = [] {
    auto* const names = new std::vector<std::string>;
    const char* const chosen = std::getenv("VERBENA_MUTANT");
    for (std::string_view rest = chosen != nullptr ? chosen : ""; !rest.empty();) {
      const size_t comma = rest.find(',');
      names->emplace_back(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return names;
  }();
  return *list;
}

// Leaves the mark that the chosen fault has been reached: a file without content, VERBENA_MUTANT_REACHED with
// the fault's name. A system call of its own, since the preload answers for open(2). Keeps errno.
inline void mark_reached(size_t place) noexcept {
  static std::atomic<uint64_t> marked{0};
  const uint64_t bit = uint64_t{1} << (place % 64);
  if ((marked.load(std::memory_order_relaxed) & bit) != 0 || (marked.fetch_or(bit) & bit) != 0) return;
  const char* const mark = std::getenv("VERBENA_MUTANT_REACHED");
  if (mark == nullptr) return;
  const int error = errno;
  const std::string file = std::string(mark) + '.' + chosen_faults()[place];
  if (const long fd = syscall(SYS_openat, AT_FDCWD, file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
      fd >= 0)
    syscall(SYS_close, fd);
  errno = error;
}

// A folder: no fault is chosen then, and those of VERBENA_MUTANT_LISTED, with commas around them, that are
// asked for leave a file there (note_asked()). A test that never asks for a fault ends with it as it ends
// without.
inline const char* asked_folder() noexcept {
  static const char* const folder = std::getenv("VERBENA_MUTANT_ASKED");
  return folder;
}

// Leaves an empty file "NAME:TEST", with the test of the conformance suite that this process runs, or "NAME:"
// outside of all tests. Once for each place that asks; mknod(2) takes no descriptor, of which a test may
// leave none. A process that cannot tell ends. Keeps errno.
inline void note_asked(const char* name) noexcept {
  static std::atomic<const char*> noted[4096] = {};
  for (size_t at = reinterpret_cast<uintptr_t>(name) * 0x9e3779b97f4a7c15u >> 52;; at = (at + 1) % 4096) {
    const char* found = noted[at].load(std::memory_order_relaxed);
    if (found == nullptr && noted[at].compare_exchange_strong(found, name)) break;
    if (found == name) return;
  }
  const char* const listed = std::getenv("VERBENA_MUTANT_LISTED");
  if (listed == nullptr || std::strstr(listed, (',' + std::string(name) + ',').c_str()) == nullptr) return;
  const int error = errno;
  const char* const test = std::getenv("CONFORMANCE_TEST");
  const std::string file = std::string(asked_folder()) + '/' + name + ':' + (test != nullptr ? test : "");
  if (syscall(SYS_mknodat, AT_FDCWD, file.c_str(), S_IFREG | 0600, 0) != 0 && errno != EEXIST) std::abort();
  errno = error;
}

// Is `name` among the faults that VERBENA_MUTANT names? Conditions ask this last, so that the mark says that
// the fault took effect.
inline bool mutated(const char* name) noexcept {
  if (asked_folder() != nullptr) note_asked(name);
  const std::vector<std::string>& chosen = chosen_faults();
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] != name) continue;
    mark_reached(i);
    return true;
  }
  return false;
}

// Is any fault chosen? Fast paths without a fault of their own are left out then.
inline bool is_any_mutant() noexcept {
  static const bool chosen = std::getenv("VERBENA_MUTANT") != nullptr || asked_folder() != nullptr;
  return chosen;
}

// Work that is done late, by a thread of its own, after a delay in which others can look. The sleep is the
// fault: a driver that is late. Registered memory may be unmapped once its region is deregistered, so
// finish_late() does at once what is left. Never destroyed: threads may be at it when the process ends.
class LateWork {
 public:
  static LateWork& of_process() {
    static auto* const work = new LateWork;
    return *work;
  }

  void add(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    const uint64_t number = ++last_;
    left_.emplace(number, std::move(work));
    std::thread([this, number] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::lock_guard own(mutex_);
      if (const auto found = left_.find(number); found != left_.end()) finish(found);
    }).detach();
  }
  void finish_all() {
    std::lock_guard lock(mutex_);
    while (!left_.empty()) finish(left_.begin());
  }

 private:
  using Left = std::map<uint64_t, std::function<void()>>;

  void finish(Left::iterator one) {
    one->second();
    left_.erase(one);
  }

  std::mutex mutex_;
  Left left_;
  uint64_t last_ = 0;
};

inline void later(std::function<void()> work) { LateWork::of_process().add(std::move(work)); }
inline void finish_late() { LateWork::of_process().finish_all(); }

// Has the page of `address` not been touched yet?
inline bool is_absent(uint64_t address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address & ~(page - 1)), page, &resident) == 0 && (resident & 1) == 0;
}

// The domain of the region that `key` names, or `otherwise`.
inline uint32_t domain_of(const SegmentView& segment, uint32_t key, uint32_t otherwise) {
  const SharedMr* mr = segment.mr(MemoryKey::unpack(key).index);
  return mr != nullptr ? mr->pd : otherwise;
}

}  // namespace verbena
