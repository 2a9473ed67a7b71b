// SPDX-License-Identifier: BSD-2-Clause
//
// One of the symbols that the provider's library exports (verbs/exports.map).
#include "rdma_cm/open.h"

extern "C" __attribute__((visibility("default"))) int verbena_rdma_cm_open(
    int flags, verbena_boundary_handler* handler) {
  return verbena::rdma_cm::open_device(flags, handler);
}
