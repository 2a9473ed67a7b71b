// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/process_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "fabric/descriptor.h"

namespace verbena {
namespace {

// pid (22 bits: PID_MAX_LIMIT is 2^22) | pid namespace (10 bits of its inode) | start time (32 bits, in clock
// ticks since the boot).
constexpr unsigned kPidShift = 42, kSpaceShift = 32;
constexpr uint64_t kSpaceMask = 0x3ff;

// Up to `size` - 1 bytes of a file of /proc, as a string; empty: it cannot be read.
std::string text_of(const std::string& path, size_t size) {
  std::string text(size, '\0');
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const ssize_t got = file.fd < 0 ? -1 : read(file.fd, text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

// /proc/<pid>/stat: "pid (name) state ...", where the name may contain anything. Field 22 is the start time.
bool read_start(pid_t pid, uint64_t* start) {
  const std::string text = text_of("/proc/" + std::to_string(pid) + "/stat", 1024);
  size_t at = text.rfind(')');
  if (at == std::string::npos || at + 2 >= text.size()) return false;
  if (text[at + 2] == 'Z' || text[at + 2] == 'X') return false;
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at == std::string::npos) return false;
  *start = std::strtoull(text.c_str() + at + 1, nullptr, 10);
  return true;
}

uint64_t own_space() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino & kSpaceMask : 0;
}

}  // namespace

uint64_t identity_of_process(pid_t pid) {
  uint64_t start = 0;
  if (pid <= 0 || !read_start(pid, &start)) return 0;
  return static_cast<uint64_t>(pid) << kPidShift | own_space() << kSpaceShift | (start & 0xffffffff);
}

bool process_lives(uint64_t identity) {
  const pid_t pid = pid_of_identity(identity);
  return pid == 0 ? identity != 0 : identity_of_process(pid) == identity;
}

pid_t pid_of_identity(uint64_t identity) {
  if ((identity >> kSpaceShift & kSpaceMask) != own_space()) return 0;
  return static_cast<pid_t>(identity >> kPidShift);
}

uint64_t this_boot() {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const std::string id = text_of("/proc/sys/kernel/random/boot_id", 64);
  for (const char c : id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return id.empty() ? 0 : hash;
}

}  // namespace verbena
