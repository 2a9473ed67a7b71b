// SPDX-License-Identifier: BSD-2-Clause
//
// Messages for people, on stderr. VERBENA_LOG=none|error|warn|info|debug selects the level.
// - The default is errors alone: conditions that the program cannot learn from any return value.
// - A refusal (warn) names the call, the object, the value and the rule that it broke.
// - info: connections, state changes. debug: also posted work requests, responses, the ends of requests and
//   completions, which then take the slow path. From info on a line has the time (UTC) and the thread.
// - Another value is an error, said once; then warn.
// - Each call writes one line at once, so that lines of several processes do not mix.
// - errno is preserved.
#pragma once

namespace verbena {

enum class LogLevel : int { kNone = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

extern LogLevel log_level;  // read once from the environment when the library is loaded

inline bool logs(LogLevel level) { return level <= log_level; }

void log_line(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Each later line of level warn or above goes to `listener` as well, without the line feed and what precedes the text,
// in the thread that wrote it. It must not log. For the checker (provider/check).
using LogListener = void (*)(int level, const char* text);
void set_log_listener(LogListener listener);

#define VERBENA_LOG_AT(level, ...)                                    \
  do {                                                                \
    if (::verbena::logs(level)) ::verbena::log_line(level, __VA_ARGS__); \
  } while (0)

#define VERBENA_ERROR(...) VERBENA_LOG_AT(::verbena::LogLevel::kError, __VA_ARGS__)
#define VERBENA_WARN(...) VERBENA_LOG_AT(::verbena::LogLevel::kWarn, __VA_ARGS__)
#define VERBENA_INFO(...) VERBENA_LOG_AT(::verbena::LogLevel::kInfo, __VA_ARGS__)
#define VERBENA_DEBUG(...) VERBENA_LOG_AT(::verbena::LogLevel::kDebug, __VA_ARGS__)

}  // namespace verbena
