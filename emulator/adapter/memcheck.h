// SPDX-License-Identifier: BSD-2-Clause
//
// Tells valgrind's memcheck which part of a large reservation is in use. Its leak check reads all accessible
// memory, and each page that it reads of a sparse file becomes a page of memory. The requests are the
// sequences of instructions of valgrind's manual ("The Client Request mechanism") and its memcheck.h; without
// valgrind they do nothing and take a few cycles.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::memcheck {

enum class Request : uint64_t {
  kRunningOnValgrind = 0x1001,
  kNoAccess = 0x4d430000,  // 'M', 'C'
  kDefined = 0x4d430002,
};

inline uint64_t ask(Request request, const void* address = nullptr, size_t size = 0) {
  volatile uint64_t arguments[6] = {
      static_cast<uint64_t>(request), reinterpret_cast<uint64_t>(address), size, 0, 0, 0};
  uint64_t answer = 0;
#if defined(__x86_64__)
  asm volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
               : "+d"(answer)
               : "a"(&arguments[0])
               : "cc", "memory");
#elif defined(__aarch64__)
  register volatile uint64_t* in asm("x4") = &arguments[0];
  register uint64_t out asm("x3") = 0;
  asm volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61; orr x10, x10, x10"
               : "+r"(out)
               : "r"(in)
               : "cc", "memory");
  answer = out;
#endif
  return answer;
}

inline bool is_running() { return ask(Request::kRunningOnValgrind) != 0; }
inline void no_access(const void* address, size_t size) { ask(Request::kNoAccess, address, size); }
inline void defined(const void* address, size_t size) { ask(Request::kDefined, address, size); }

}  // namespace verbena::memcheck
