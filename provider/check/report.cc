// SPDX-License-Identifier: BSD-2-Clause
#include "check/report.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "findings/variables.h"

namespace verbena::check {
namespace {

// One line of the file, whose stacks have no names yet.
struct Line {
  std::string head;
  std::vector<std::pair<std::string, Stack>> calls;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Initial-exec: the library is preloaded, and its hooks run before a thread's other variables exist.
thread_local int inside __attribute__((tls_model("initial-exec"))) = 0;

std::vector<Line>& pending() {
  static auto* const lines = new std::vector<Line>;
  return *lines;
}
auto& reported() {
  static auto* const set = new std::set<std::pair<const findings::Rule*, StackId>>;
  return *set;
}

bool names(const char* list, std::string_view id) {
  for (std::string_view rest = list != nullptr ? list : ""; !rest.empty();) {
    const size_t end = rest.find(',');
    const std::string_view word = rest.substr(0, end);
    if (word == id || word == "all") return true;
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  return false;
}

// By system calls: the wrappers of libc are cancellation points.
void append_to_file(const std::string& line) {
  const char* path = getenv(findings::kFileVariable);
  if (path == nullptr) return;
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  for (size_t done = 0; done < line.size();) {
    const long written = syscall(SYS_write, fd, line.data() + done, line.size() - done);
    if (written <= 0 && errno != EINTR) break;
    if (written > 0) done += static_cast<size_t>(written);
  }
  syscall(SYS_close, fd);
}

std::string head_of(const findings::Rule& rule, const std::string& what) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  std::string head =
      text("{\"pid\":%d,\"rule\":\"%s\",\"program\":", static_cast<int>(getpid()), rule.id.data());
  append_json(head, path);
  head += ",\"what\":";
  append_json(head, what.c_str());
  return head;
}

void write_line(const Line& line) {
  std::string out = line.head;
  if (!line.calls.empty()) {
    out += ",\"calls\":[";
    for (const auto& [what, stack] : line.calls) {
      out += &what == &line.calls.front().first ? "{\"what\":" : ",{\"what\":";
      append_json(out, what.c_str());
      out += ",\"stack\":";
      append_frames(out, stack);
      out += '}';
    }
    out += ']';
  }
  out += "}\n";
  append_to_file(out);
}

}  // namespace

std::string text(const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

bool is_enabled(const findings::Rule& rule) {
  static const auto enabled = [] {
    std::array<bool, findings::kRuleCount> on{};
    for (size_t i = 0; i < findings::kRuleCount; ++i) {
      const findings::Rule& each = findings::kRules[i];
      on[i] = (each.by_default || names(getenv(findings::kEnabledVariable), each.id)) &&
              !names(getenv(findings::kDisabledVariable), each.id);
    }
    return on;
  }();
  return enabled[static_cast<size_t>(&rule - findings::kRules)];
}

void report(const findings::Rule& rule, const std::string& what, std::initializer_list<Call> calls) {
  const StackId first = calls.size() != 0 ? calls.begin()->stack : 0;
  if (!is_enabled(rule) || !reported().insert({&rule, first}).second) return;
  Line line{head_of(rule, what), {}};
  for (const Call& call : calls)
    if (call.stack != 0) line.calls.emplace_back(call.what, kept_stack(call.stack));
  pending().push_back(std::move(line));
}

void report_leak(const findings::Rule& rule, const std::string& what, StackId created, uint64_t number) {
  if (!is_enabled(rule)) return;
  Line line{head_of(rule, what) + text(",\"leak\":%llu", static_cast<unsigned long long>(number)), {}};
  line.calls.emplace_back("made here", kept_stack(created));
  pending().push_back(std::move(line));
}

void retract_leak(uint64_t number) {
  pending().push_back({text("{\"pid\":%d,\"retract\":%llu", static_cast<int>(getpid()),
                            static_cast<unsigned long long>(number)),
                       {}});
}

void report_device(const char* name) {
  std::string line = text("{\"pid\":%d,\"device\":", static_cast<int>(getpid()));
  append_json(line, name);
  pending().push_back({std::move(line), {}});
}

Locked::Locked() {
  ++inside;
  pthread_mutex_lock(&lock);
}

Locked::Locked(bool* got) {
  constexpr long kPatience = 100'000'000;  // ns
  ++inside;
  got_ = pthread_mutex_trylock(&lock) == 0;
  if (!got_) {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += kPatience;
    until.tv_sec += until.tv_nsec / 1'000'000'000;
    until.tv_nsec %= 1'000'000'000;
    got_ = pthread_mutex_timedlock(&lock, &until) == 0;
  }
  *got = got_;
}

Locked::~Locked() {
  if (!got_) {
    --inside;
    return;
  }
  const int error = errno;
  std::vector<Line> lines;
  lines.swap(pending());
  pthread_mutex_unlock(&lock);
  for (const Line& line : lines) write_line(line);
  lines = {};
  --inside;
  errno = error;
}

bool is_inside() { return inside != 0; }
Inside::Inside() { ++inside; }
Inside::~Inside() { --inside; }

void lock_for_fork() {
  ++inside;
  pthread_mutex_lock(&lock);
}
void unlock_after_fork() {
  pthread_mutex_unlock(&lock);
  --inside;
}

}  // namespace verbena::check
