// SPDX-License-Identifier: BSD-2-Clause
//
// What can be seen only after a while: calls that do not return because of something that the program has not
// done. A thread looks at them ten times a second. It starts with the first such call.
#pragma once

#include "check/model.h"

namespace verbena::check {

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
