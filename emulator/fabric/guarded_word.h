// SPDX-License-Identifier: BSD-2-Clause
//
// One word of memory whose page may go away meanwhile: what guarded_copy.h does with a sigjmp_buf, without
// its cost. The functions are a few instructions without a stack frame. The handler for SIGBUS lets a
// function that it has interrupted return false.
#pragma once

#include <cstdint>

namespace verbena {

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool kHasGuardedWords = true;
#else
inline constexpr bool kHasGuardedWords = false;  // the functions are not to be called
#endif

// 8 bytes, in one store. `to` is aligned.
bool move_word_guarded(void* to, const void* from);
// Atomic, as those of guarded_copy.h.
bool add_to_word_guarded(uint64_t* word, uint64_t addend, uint64_t* before);
bool exchange_word_guarded(uint64_t* word, uint64_t compare, uint64_t swap, uint64_t* before);

// In the handler of a fault: `context` is its ucontext_t. True: the fault was in one of the functions above,
// which returns false after the handler.
bool end_guarded_word(void* context);

}  // namespace verbena
