// SPDX-License-Identifier: BSD-2-Clause
#include "engine/service/begin_injection.h"

#include <cstdlib>
#include <new>

#include "adapter/clock.h"
#include "engine/local/fast_path.h"
#include "engine/rules/vendor_error.h"
#include "faults/injection.h"
#include "observe/log.h"

namespace verbena {
namespace {

faults::Injection* of_parent = nullptr;  // leak checkers find it here

}  // namespace

void begin_injection() {
  const char* const text = getenv(faults::kVariable);
  if (text == nullptr || *text == 0 || faults::injection() != nullptr) return;
  faults::Plan plan;
  if (!faults::parse_plan(text, &plan)) {
    VERBENA_ERROR(faults_unreadable, "open_device: VERBENA_FAULTS is no plan of faults: none is injected");
    return;
  }
  fast_path_enabled.store(false, std::memory_order_relaxed);
  faults::attached_injection.store(
      new (std::nothrow) faults::Injection(plan, now_ns(), static_cast<uint32_t>(VendorError::peer_silent)),
      std::memory_order_release);
}

void forget_injection() {
  if (faults::Injection* const injection = faults::attached_injection.exchange(nullptr); injection != nullptr)
    of_parent = injection;
}

}  // namespace verbena
