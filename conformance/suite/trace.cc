// SPDX-License-Identifier: BSD-2-Clause
#include "suite/trace.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace conformance {

struct Trace::Shared {
  std::atomic<uint32_t> count;
  char lines[line_count][line_size];
};

namespace {
Trace* current = nullptr;
}

Trace::Trace() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shared_ = static_cast<Shared*>(memory);
}

Trace::~Trace() { munmap(shared_, sizeof(Shared)); }

void Trace::clear() { shared_->count.store(0); }

void Trace::add(const std::string& line) {
  char* to = shared_->lines[shared_->count.fetch_add(1) % line_count];
  const size_t length = std::min(line.size(), line_size - 1);
  memcpy(to, line.data(), length);
  to[length] = 0;
}

std::vector<std::string> Trace::lines() const {
  const uint32_t count = shared_->count.load();
  std::vector<std::string> out;
  for (uint32_t i = count > line_count ? count - line_count : 0; i < count; ++i) {
    const char* line = shared_->lines[i % line_count];
    out.emplace_back(line, strnlen(line, line_size));
  }
  return out;
}

void use_trace(Trace* trace) { current = trace; }

void trace(const std::string& line) {
  if (current != nullptr) current->add(line);
}

std::string errno_text(int error) {
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

std::string result_text(const void* pointer, int error) {
  return pointer != nullptr ? "not null" : "null, errno " + errno_text(error);
}

std::string result_text(long long number, int error) {
  std::string text = std::to_string(number);
  const char* name = number > 0 && number < 134 ? strerrorname_np(static_cast<int>(number)) : nullptr;
  if (name != nullptr) text += " (" + std::string(name) + ")";
  if (number < 0) text += ", errno " + errno_text(error);
  return text;
}

}  // namespace conformance
