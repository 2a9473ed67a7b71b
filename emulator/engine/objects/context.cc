// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>

#include <algorithm>

#include "engine/objects/context.h"
#include "engine/objects/process.h"

namespace verbena {

int usable(const Context& context) {
  return context.process->dead() || context.failed.load(std::memory_order_acquire) ? EIO : 0;
}

int usable(Process& process, uint64_t file) {
  if (process.dead()) return EIO;
  std::lock_guard lock(process.contexts_mutex);
  const auto failed = [file](const Context* context) { return context->file == file && context->failed; };
  return std::any_of(process.contexts.begin(), process.contexts.end(), failed) ? EIO : 0;
}

}  // namespace verbena
