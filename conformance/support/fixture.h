// SPDX-License-Identifier: BSD-2-Clause
//
// Fixtures grow in steps: the open device; objects on it (objects.h); two connected ends (ends.h).
#pragma once

#include <optional>

#include "suite/test.h"
#include "support/device.h"

namespace conformance {

class DeviceTest : public Test {
 protected:
  // Opened when first asked for. Throws Deviation when it can no longer be opened.
  Device& device(Where where = Where::current());
  ibv_context* context(Where where = Where::current()) { return device(where).context(); }

 private:
  std::optional<Device> device_;
};

}  // namespace conformance
