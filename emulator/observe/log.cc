// SPDX-License-Identifier: BSD-2-Clause
#include "observe/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace verbena {
namespace {

constexpr const char* kNames[] = {"none", "error", "warn", "info", "debug"};

LogLevel level_from_environment() {
  const char* wanted = getenv("VERBENA_LOG");
  if (wanted == nullptr) return LogLevel::kError;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (strcmp(wanted, kNames[i]) == 0) return static_cast<LogLevel>(i);
  return LogLevel::kWarn;  // an unknown value: the user wants some output
}

}  // namespace

LogLevel log_level = level_from_environment();

void log_line(LogLevel level, const char* format, ...) {
  const int saved = errno;
  char line[512];
  int used = snprintf(line, sizeof line, "verbena[%d] %s: ", static_cast<int>(getpid()),
                      kNames[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  const size_t head = static_cast<size_t>(used);
  used += vsnprintf(line + head, sizeof line - head, format, arguments);
  va_end(arguments);
  const size_t length = std::min(static_cast<size_t>(used), sizeof line - 1);
  line[length] = '\n';
  syscall(SYS_write, STDERR_FILENO, line, length + 1);
  errno = saved;
}

}  // namespace verbena
