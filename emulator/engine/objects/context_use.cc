// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/context_use.h"

#include "engine/objects/context.h"

namespace verbena {

ContextUse& ContextUse::operator=(Context* context) {
  if (context != nullptr) context->users.fetch_add(1, std::memory_order_relaxed);
  if (context_ != nullptr) context_->users.fetch_sub(1, std::memory_order_release);
  context_ = context;
  return *this;
}

}  // namespace verbena
