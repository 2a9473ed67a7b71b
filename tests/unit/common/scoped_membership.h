// SPDX-License-Identifier: BSD-2-Clause
//
// A process on a node, for as long as the object exists.
#pragma once

#include <string>

#include "fabric/node_membership.h"

namespace verbena {

class ScopedMembership {
 public:
  explicit ScopedMembership(const std::string& node, ServiceWork work = nullptr, void* context = nullptr)
      : error(membership.enter(node, work, context)) {}
  ScopedMembership(const ScopedMembership&) = delete;
  ScopedMembership& operator=(const ScopedMembership&) = delete;
  ~ScopedMembership() {
    if (error == 0) membership.leave();
  }
  NodeMembership membership;
  const int error;
};

}  // namespace verbena
