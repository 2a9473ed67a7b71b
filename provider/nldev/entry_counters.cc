// SPDX-License-Identifier: BSD-2-Clause
//
// One of the symbols that the provider's library exports (verbs/exports.map).
#include <errno.h>

#include <exception>

#include "no_cancellation.h"
#include "survey/counters.h"
#include "survey/devices.h"

extern "C" __attribute__((visibility("default"))) int verbena_refresh_counter(const char* path) {
  const verbena::NoCancellation guard;
  try {
    return verbena::refresh_counter(verbena::node_of_environment(), path);
  } catch (const std::exception&) {
    return ENOMEM;
  }
}
