// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/shared_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric/memory_map.h"

namespace verbena {
namespace {

bool is_file(int fd, const SharedFile& file) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_dev == file.device &&
         status.st_ino == file.inode;
}

}  // namespace

bool find_shared_file(std::string_view maps, uint64_t address, uint64_t length, SharedFile* out) {
  if (length == 0) return false;
  uint64_t next = address;  // the first byte that is not covered yet
  for (MappedRange range; take_range(&maps, &range);) {
    if (range.end <= next) continue;
    if (range.begin > next || !range.shared || range.inode == 0) return false;
    const uint64_t offset = range.offset + (next - range.begin);
    if (next == address)
      *out = {range.device, range.inode, offset, range.begin, range.end, std::string(range.path)};
    else if (range.device != out->device || range.inode != out->inode ||
             offset != out->offset + (next - address))
      return false;
    next = range.end;
    if (next - address >= length) return true;
  }
  return false;
}

bool find_shared_file(uint64_t address, uint64_t length, SharedFile* out) {
  return find_shared_file(read_memory_map(), address, length, out);
}

bool is_file_page(uint64_t address) { return are_file_pages(address, address); }

bool are_file_pages(uint64_t address, uint64_t other) {
  // Bit 61: a file page or shared-anonymous (proc(5)); bit 63: present.
  constexpr uint64_t kFileAndPresent = uint64_t{1} << 61 | uint64_t{1} << 63;
  const auto fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0));
  if (fd < 0) return false;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto is_one = [&](uint64_t number) {
    uint64_t entry = 0;
    const auto at = static_cast<off_t>(number * sizeof entry);
    return syscall(SYS_pread64, fd, &entry, sizeof entry, at) == sizeof entry &&
           (entry & kFileAndPresent) == kFileAndPresent;
  };
  const uint64_t first = address / page, second = other / page;
  const bool are = is_one(first) && (second == first || is_one(second));
  syscall(SYS_close, fd);
  return are;
}

int find_open_descriptor(const SharedFile& file, bool writable) {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int found = -1;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = atoi(entry->d_name);
    if (fd == dirfd(folder) || !is_file(fd, file)) continue;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY) continue;
    if (writable && (flags & O_ACCMODE) != O_RDWR) continue;
    found = fd;
    break;
  }
  closedir(folder);
  return found;
}

int open_shared_file(const SharedFile& file, bool writable) {
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const auto open_if_same = [&](const char* path) {
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, 0));
    if (fd < 0 || is_file(fd, file)) return fd;
    syscall(SYS_close, fd);
    return -1;
  };
  if (const int fd = open_if_same(file.path.c_str()); fd >= 0) return fd;
  // Needs CAP_CHECKPOINT_RESTORE (proc(5), /proc/pid/map_files).
  char name[64];
  snprintf(name, sizeof name, "/proc/self/map_files/%llx-%llx", static_cast<unsigned long long>(file.begin),
           static_cast<unsigned long long>(file.end));
  return open_if_same(name);
}

}  // namespace verbena
