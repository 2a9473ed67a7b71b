// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/guarded_word.h"

#include <ucontext.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

// The functions are all that is in this section. The linker gives its bounds.
#ifdef __clang__
#define VERBENA_GUARDED_WORD __attribute__((naked, noinline, used, section("verbena_guarded_words")))
#else
#define VERBENA_GUARDED_WORD __attribute__((naked, noipa, used, section("verbena_guarded_words")))
#endif
extern "C" __attribute__((visibility("hidden"))) const char __start_verbena_guarded_words[];
extern "C" __attribute__((visibility("hidden"))) const char __stop_verbena_guarded_words[];

namespace verbena {

// System V ABI for x86-64: arguments in rdi, rsi, rdx, rcx; rax is the caller's to lose. Stores are in order.
VERBENA_GUARDED_WORD bool move_word_guarded(void*, const void*) {
  asm("mov (%rsi), %rax\n mov %rax, (%rdi)\n mov $1, %eax\n ret");
}

VERBENA_GUARDED_WORD bool add_to_word_guarded(uint64_t*, uint64_t, uint64_t*) {
  asm("lock xadd %rsi, (%rdi)\n mov %rsi, (%rdx)\n mov $1, %eax\n ret");
}

VERBENA_GUARDED_WORD bool exchange_word_guarded(uint64_t*, uint64_t, uint64_t, uint64_t*) {
  asm("mov %rsi, %rax\n lock cmpxchg %rdx, (%rdi)\n mov %rax, (%rcx)\n mov $1, %eax\n ret");
}

// How the others return after a fault: there is no frame.
VERBENA_GUARDED_WORD bool word_is_gone() { asm("xor %eax, %eax\n ret"); }

bool end_guarded_word(void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto at = static_cast<uint64_t>(registers[REG_RIP]);
  if (at < reinterpret_cast<uint64_t>(__start_verbena_guarded_words) ||
      at >= reinterpret_cast<uint64_t>(__stop_verbena_guarded_words))
    return false;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&word_is_gone);
  return true;
}

}  // namespace verbena

#else

namespace verbena {

bool move_word_guarded(void*, const void*) { return false; }
bool add_to_word_guarded(uint64_t*, uint64_t, uint64_t*) { return false; }
bool exchange_word_guarded(uint64_t*, uint64_t, uint64_t, uint64_t*) { return false; }
bool end_guarded_word(void*) { return false; }

}  // namespace verbena

#endif
