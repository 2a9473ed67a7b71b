// SPDX-License-Identifier: BSD-2-Clause
#include "check/mappings.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace verbena::check {

std::vector<Mapping> read_mappings() {
  std::vector<Mapping> found;
  std::string text;
  const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return found;
  char buffer[4096];
  for (long got; (got = syscall(SYS_read, fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  syscall(SYS_close, fd);
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    Mapping mapping = {};
    unsigned long begin = 0, end = 0;
    if (sscanf(text.c_str() + at, "%lx-%lx %4s", &begin, &end, mapping.rights) != 3) continue;
    mapping.begin = begin;
    mapping.end = end;
    found.push_back(mapping);
  }
  return found;
}

}  // namespace verbena::check
