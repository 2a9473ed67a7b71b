// SPDX-License-Identifier: BSD-2-Clause
//
// An object's context, which stays for as long as objects look at it, even if the program closes it before it destroys
// them.
#pragma once

namespace verbena {

struct Context;

class ContextUse {
 public:
  ContextUse() = default;
  ContextUse(Context* context) { *this = context; }
  ContextUse(const ContextUse& other) { *this = other.context_; }
  ~ContextUse() { *this = nullptr; }

  ContextUse& operator=(Context* context);
  ContextUse& operator=(const ContextUse& other) { return *this = other.context_; }

  operator Context*() const { return context_; }
  Context* operator->() const { return context_; }

 private:
  Context* context_ = nullptr;
};

}  // namespace verbena
