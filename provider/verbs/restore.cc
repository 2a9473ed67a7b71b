// SPDX-License-Identifier: BSD-2-Clause
//
// For the preload, when the node's device tree is gone (boundary/claim.h).
#include <errno.h>

#include <exception>

#include "emulator.h"
#include "no_cancellation.h"

extern "C" __attribute__((visibility("default"))) int verbena_restore_node(const char* path) {
  const verbena::NoCancellation guard;
  try {
    return verbena::restore_node(path);
  } catch (const std::exception&) {
    return ENOMEM;
  }
}
