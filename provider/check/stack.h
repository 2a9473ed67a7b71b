// SPDX-License-Identifier: BSD-2-Clause
//
// Where the program was: return addresses, without the checker's own frames. They are made readable later, by
// the command (tool/symbolizer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace verbena::check {

inline constexpr unsigned kStackDepth = 24;

struct Stack {
  unsigned depth = 0;
  uintptr_t frames[kStackDepth];  // return addresses, the innermost first
  // Of each frame: where the function begins, and the end of its part of the stack. They do not count for
  // equality.
  uintptr_t functions[kStackDepth];
  uintptr_t ends[kStackDepth];

  bool operator==(const Stack& other) const;
};

// Stacks begin above the adapter's library, which has `function`: it calls the checker when a device is
// opened. Before other threads take stacks.
void leave_out_adapter(const void* function);

// The stack of the calling thread. No lock, no memory.
Stack capture_stack();

// A stack that is kept for good; equal ones have one number. 0: no stack.
using StackId = uint32_t;

StackId keep_stack(const Stack& stack);  // with the model's lock held
const Stack& kept_stack(StackId id);     // likewise; 0: an empty one

// Appends the JSON array of findings/variables.h. Takes the dynamic linker's lock: call it without the
// model's.
void append_frames(std::string& out, const Stack& stack);

void append_json(std::string& out, const char* text);  // a JSON string, with its quotes

}  // namespace verbena::check
