// SPDX-License-Identifier: BSD-2-Clause
#include "engine/service/begin_injection.h"

#include <cstdlib>
#include <mutex>
#include <new>

#include "adapter/clock.h"
#include "engine/local/fast_path.h"
#include "engine/rules/vendor_error.h"
#include "faults/injection.h"
#include "observe/log.h"

namespace verbena {

void begin_injection() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const text = getenv("VERBENA_FAULTS");
    if (text == nullptr || *text == 0) return;
    faults::Plan plan;
    if (!faults::parse_plan(text, &plan)) {
      VERBENA_ERROR(faults_unreadable, "open_device: VERBENA_FAULTS is no plan of faults: none is injected");
      return;
    }
    fast_path_enabled.store(false, std::memory_order_relaxed);
    faults::attached_injection.store(
        new (std::nothrow) faults::Injection(plan, now_ns(), static_cast<uint32_t>(VendorError::peer_silent)),
        std::memory_order_release);
  });
}

}  // namespace verbena
