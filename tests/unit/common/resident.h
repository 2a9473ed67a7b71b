// SPDX-License-Identifier: BSD-2-Clause
//
// Lives on a node for as long as the object does.
#pragma once

#include <string>

#include "fabric/residence.h"

namespace verbena {

class Resident {
 public:
  explicit Resident(const std::string& node) : error(home.enter(node, nullptr, nullptr)) {}
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;
  ~Resident() {
    if (error == 0) home.leave();
  }
  Residence home;
  const int error;
};

}  // namespace verbena
