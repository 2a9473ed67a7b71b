// SPDX-License-Identifier: BSD-2-Clause
//
// Messages for people, on stderr. VERBENA_LOG=none|error|warn|info|debug selects the level.
// - The default is errors alone: conditions that the program cannot learn from any return value.
// - A refusal (warn) names the call, the object, the value and the rule that it broke.
// - info: connections, state changes. debug: also posted work requests, responses, the ends of requests and
//   completions, which then take the slow path. From info on a line has the time (UTC) and the thread.
// - Another value is an error, said once; then warn.
// - A line at error or warn has a row in diagnostics.def, and ends with its code: "[send_queue_full]".
//   `verbena explain CODE` prints the rule, its source and what to do.
// - Each call writes one line at once, so that lines of several processes do not mix.
// - errno is preserved.
#pragma once

#include "observe/diagnostic.h"

namespace verbena {

enum class LogLevel : int { kNone = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

extern LogLevel log_level;  // read once from the environment when the library is loaded

inline bool logs(LogLevel level) { return level <= log_level; }

void log_line(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

#define VERBENA_LOG_AT(level, ...)                                       \
  do {                                                                   \
    if (::verbena::logs(level)) ::verbena::log_line(level, __VA_ARGS__); \
  } while (0)

// `code`: of enum class DiagnosticCode. `format`: a literal.
#define VERBENA_REPORT(level, code, format, ...)                             \
  do {                                                                       \
    static_cast<void>(::verbena::DiagnosticCode::code);                      \
    VERBENA_LOG_AT(level, format " [" #code "]" __VA_OPT__(, ) __VA_ARGS__); \
  } while (0)

#define VERBENA_ERROR(code, ...) VERBENA_REPORT(::verbena::LogLevel::kError, code, __VA_ARGS__)
#define VERBENA_WARN(code, ...) VERBENA_REPORT(::verbena::LogLevel::kWarn, code, __VA_ARGS__)
#define VERBENA_INFO(...) VERBENA_LOG_AT(::verbena::LogLevel::kInfo, __VA_ARGS__)
#define VERBENA_DEBUG(...) VERBENA_LOG_AT(::verbena::LogLevel::kDebug, __VA_ARGS__)

}  // namespace verbena
