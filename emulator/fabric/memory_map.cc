// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/memory_map.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

namespace verbena {
namespace {

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

std::string_view take_line(std::string_view* text) {
  const size_t size = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, size);
  text->remove_prefix(std::min(size + 1, text->size()));
  return line;
}

// "begin-end perms offset major:minor inode   path".
bool parse(std::string_view text, MappedRange* out) {
  const auto begin = take_number(&text, 16), end = take_number(&text, 16);
  if (!begin || !end || text.size() < 5) return false;
  const int protection =
      (text[0] == 'r' ? PROT_READ : 0) | (text[1] == 'w' ? PROT_WRITE : 0) | (text[2] == 'x' ? PROT_EXEC : 0);
  const bool shared = text[3] == 's';
  text.remove_prefix(5);
  const auto offset = take_number(&text, 16), major = take_number(&text, 16), minor = take_number(&text, 16);
  const auto inode = take_number(&text, 10);
  if (!offset || !major || !minor || !inode) return false;
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  *out = {};
  out->begin = *begin;
  out->end = *end;
  out->offset = *offset;
  out->device = makedev(static_cast<unsigned>(*major), static_cast<unsigned>(*minor));
  out->inode = *inode;
  out->protection = protection;
  out->shared = shared;
  out->path = text;
  return true;
}

PageText read_all(const char* path) {
  PageText all;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
  if (fd < 0) return all;
  all.reserve(64 * 1024);
  char part[16 * 1024];
  for (long got; (got = syscall(SYS_read, fd, part, sizeof part)) > 0;)
    all.append(part, static_cast<size_t>(got));
  syscall(SYS_close, fd);
  return all;
}

constexpr std::string_view kFlags = "VmFlags:", kPageSize = "KernelPageSize:";

// Of a line as "KernelPageSize:        4 kB", after the colon. 0: it is not.
uint64_t kibibytes(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return take_number(&text, 10).value_or(0) * 1024;
}

}  // namespace

bool take_range(std::string_view* text, MappedRange* out) {
  bool found = false;
  while (!text->empty()) {
    const std::string_view all = *text;
    const std::string_view line = take_line(text);
    MappedRange range;
    if (parse(line, &range)) {
      if (found) return *text = all, true;
      *out = range;
      found = true;
    } else if (found && line.substr(0, kPageSize.size()) == kPageSize) {
      out->page_size = kibibytes(line.substr(kPageSize.size()));
    } else if (found && line.substr(0, kFlags.size()) == kFlags) {
      out->flags = line.substr(kFlags.size());
      return true;
    }
  }
  return found;
}

PageText read_memory_map(bool with_flags) {
  return read_all(with_flags ? "/proc/self/smaps" : "/proc/self/maps");
}

PageText read_status() { return read_all("/proc/self/status"); }

int64_t memory_status(std::string_view text, const char* name) {
  const std::string_view wanted = name;
  while (!text.empty()) {
    const std::string_view line = take_line(&text);
    if (line.size() > wanted.size() && line.substr(0, wanted.size()) == wanted && line[wanted.size()] == ':')
      return atoll(line.data() + wanted.size() + 1);  // ends at the end of the line
  }
  return -1;
}

}  // namespace verbena
