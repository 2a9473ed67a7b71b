// SPDX-License-Identifier: BSD-2-Clause
//
// What can be seen only after a while: calls that do not return because of something that the program has not
// done. A thread looks at them ten times a second. It starts with the first such call.
#pragma once

#include "check/model.h"

namespace verbena::check {

// The completion queue with this handle is going to be destroyed: from now on it is not looked at. Waits
// until it is not, without the lock. nullptr: there is none, or it was destroyed. If it exists afterwards,
// the caller takes CompletionQueue::ending back.
CompletionQueue* begin_destroying(const void* handle);

// While one lives, this thread waits for an event of `channel`.
class Waiting {
 public:
  Waiting(const void* channel, const Stack& stack);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
};

// While one lives, this thread destroys `object`, which takes until all its events are acknowledged.
class Destroying {
 public:
  Destroying(const void* object, const Stack& stack);
  ~Destroying();
  Destroying(const Destroying&) = delete;
  Destroying& operator=(const Destroying&) = delete;
};

}  // namespace verbena::check
