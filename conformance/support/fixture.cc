// SPDX-License-Identifier: BSD-2-Clause
#include "support/fixture.h"

#include <stdexcept>

namespace conformance {

Device& DeviceTest::device(Where where) {
  try {
    if (!device_) device_.emplace(options());
  } catch (const std::runtime_error& error) {
    throw Deviation{error.what(), where};
  }
  return *device_;
}

}  // namespace conformance
