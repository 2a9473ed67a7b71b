// SPDX-License-Identifier: BSD-2-Clause
//
// A reference from an object to its context. The context stays as long as objects refer to it, even if the
// program closes the context before it destroys the objects.
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
