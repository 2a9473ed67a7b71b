// SPDX-License-Identifier: BSD-2-Clause
//
// The last calls of a test, in memory shared with the parent, which can read them even after a crash or a
// hang.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace conformance {

class Trace {
 public:
  static constexpr size_t line_count = 128, line_size = 240;

  Trace();  // throws std::bad_alloc
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void clear();
  void add(const std::string& line);       // any thread; cut to line_size - 1 bytes
  std::vector<std::string> lines() const;  // the newest line_count, oldest first

 private:
  struct Shared;
  Shared* shared_;
};

// The trace of the test that this process runs; calls outside of a test are not traced.
void use_trace(Trace* trace);
void trace(const std::string& line);

std::string errno_text(int error);  // "EINVAL", or the number

// A call's result, as the trace shows it.
std::string result_text(const void* pointer, int error);
std::string result_text(long long number, int error);

// Makes the call, and leaves "EXPRESSION = RESULT" in the trace. errno is 0 before the call and unchanged
// after it.
template <typename Callable>
auto traced(const char* expression, Callable callable) {
  errno = 0;
  if constexpr (std::is_void_v<decltype(callable())>) {
    trace(std::string(expression) + " ...");
    callable();
  } else {
    trace(std::string(expression) + " ...");
    auto result = callable();
    const int error = errno;
    if constexpr (std::is_pointer_v<decltype(result)>)
      trace("  = " + result_text(static_cast<const void*>(result), error));
    else
      trace("  = " + result_text(static_cast<long long>(result), error));
    errno = error;
    return result;
  }
}

}  // namespace conformance

#define CALL(...) ::conformance::traced(#__VA_ARGS__, [&] { return __VA_ARGS__; })
