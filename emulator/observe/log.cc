// SPDX-License-Identifier: BSD-2-Clause
#include "observe/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "observe/log_listener.h"

namespace verbena {
namespace {

constexpr const char* kNames[] = {"none", "error", "warn", "info", "debug"};

LogLevel level_from_environment() {
  const char* wanted = getenv("VERBENA_LOG");
  if (wanted == nullptr) return LogLevel::kError;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (strcmp(wanted, kNames[i]) == 0) return static_cast<LogLevel>(i);
  dprintf(STDERR_FILENO,
          "verbena[%d] error: VERBENA_LOG=%s is none of none, error, warn, info, debug: taken as warn\n",
          static_cast<int>(getpid()), wanted);
  return LogLevel::kWarn;
}

// "12:34:56.789012 thread 4711: ", for a reader who follows what happens.
size_t write_time(char* out, size_t size) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto second = static_cast<unsigned>(now.tv_sec % 86400);
  return static_cast<size_t>(snprintf(out, size, "%02u:%02u:%02u.%06ld thread %ld: ", second / 3600,
                                      second / 60 % 60, second % 60, now.tv_nsec / 1000,
                                      syscall(SYS_gettid)));
}

}  // namespace

LogLevel log_level = level_from_environment();

namespace {

LogLevel written_level = LogLevel::kNone;  // with a listener: lines above it are for the listener alone
std::atomic<LogListener> log_listener{nullptr};

}  // namespace

void set_log_listener(LogListener listener) {
  written_level = log_level;
  log_listener.store(listener, std::memory_order_release);
  log_level = std::max(log_level, LogLevel::kWarn);
}

void log_line(LogLevel level, const char* format, ...) {
  const int saved = errno;
  char line[512];
  int used = snprintf(line, sizeof line, "verbena[%d] %s: ", static_cast<int>(getpid()),
                      kNames[static_cast<int>(level)]);
  size_t head = static_cast<size_t>(used);
  if (log_level >= LogLevel::kInfo) head += write_time(line + head, sizeof line - head);
  va_list arguments;
  va_start(arguments, format);
  used = static_cast<int>(head) + vsnprintf(line + head, sizeof line - head, format, arguments);
  va_end(arguments);
  const size_t length = std::min(static_cast<size_t>(used), sizeof line - 1);
  const LogListener listener = log_listener.load(std::memory_order_acquire);
  if (listener != nullptr && level <= LogLevel::kWarn) {
    line[length] = 0;
    listener(static_cast<int>(level), line + head);
  }
  errno = saved;
  if (listener != nullptr && level > written_level) return;
  line[length] = '\n';
  syscall(SYS_write, STDERR_FILENO, line, length + 1);
  errno = saved;
}

}  // namespace verbena
