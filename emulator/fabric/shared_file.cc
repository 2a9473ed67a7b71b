// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/shared_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <optional>

namespace verbena {
namespace {

// A line of /proc/pid/maps: "begin-end perms offset major:minor inode   path".
struct Line {
  uint64_t begin, end, offset, inode;
  unsigned major, minor;
  bool shared;
  std::string_view path;
};

// The number at the front of `text` in the base given, and the character after it, are taken off.
std::optional<uint64_t> take_number(std::string_view* text, unsigned base) {
  uint64_t value = 0;
  size_t at = 0;
  for (; at < text->size(); ++at) {
    const char c = (*text)[at];
    const unsigned digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
    if (digit >= base) break;
    value = value * base + digit;
  }
  if (at == 0) return std::nullopt;
  text->remove_prefix(at < text->size() ? at + 1 : at);
  return value;
}

std::optional<Line> parse(std::string_view text) {
  const auto begin = take_number(&text, 16), end = take_number(&text, 16);
  if (!begin || !end || text.size() < 5) return std::nullopt;
  const bool shared = text[3] == 's';
  text.remove_prefix(5);
  const auto offset = take_number(&text, 16), major = take_number(&text, 16), minor = take_number(&text, 16);
  const auto inode = take_number(&text, 10);
  if (!offset || !major || !minor || !inode) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return Line{*begin, *end, *offset, *inode, static_cast<unsigned>(*major), static_cast<unsigned>(*minor),
              shared, text};
}

std::string read_all(const char* path) {
  std::string all;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return all;
  char part[16 * 1024];
  for (long got; (got = syscall(SYS_read, fd, part, sizeof part)) > 0;)
    all.append(part, static_cast<size_t>(got));
  syscall(SYS_close, fd);
  return all;
}

bool is_file(int fd, const SharedFile& file) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_dev == file.device &&
         status.st_ino == file.inode;
}

}  // namespace

bool find_shared_file(std::string_view maps, uint64_t address, uint64_t length, SharedFile* out) {
  if (length == 0) return false;
  uint64_t next = address;  // the first byte that is not covered yet
  while (!maps.empty()) {
    const size_t size = std::min(maps.find('\n'), maps.size());
    const auto line = parse(maps.substr(0, size));
    maps.remove_prefix(std::min(size + 1, maps.size()));
    if (!line || line->end <= next) continue;
    if (line->begin > next || !line->shared || line->inode == 0) return false;
    const uint64_t offset = line->offset + (next - line->begin);
    const dev_t device = makedev(line->major, line->minor);
    if (next == address)
      *out = {device, line->inode, offset, line->begin, line->end, std::string(line->path)};
    else if (device != out->device || line->inode != out->inode || offset != out->offset + (next - address))
      return false;
    next = line->end;
    if (next - address >= length) return true;
  }
  return false;
}

bool find_shared_file(uint64_t address, uint64_t length, SharedFile* out) {
  return find_shared_file(read_all("/proc/self/maps"), address, length, out);
}

bool is_file_page(uint64_t address) {
  // Bit 61: a file page or shared-anonymous (proc(5)); bit 63: present.
  constexpr uint64_t kFileAndPresent = uint64_t{1} << 61 | uint64_t{1} << 63;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  uint64_t entry = 0;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto at = static_cast<off_t>(address / page * sizeof entry);
  const bool got = syscall(SYS_pread64, fd, &entry, sizeof entry, at) == sizeof entry;
  syscall(SYS_close, fd);
  return got && (entry & kFileAndPresent) == kFileAndPresent;
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
