// SPDX-License-Identifier: BSD-2-Clause
//
// Functions that libibverbs exports to providers only, as far as this provider uses them. They have the
// symbol version of the private ABI ("IBVERBS_PRIVATE_34"), so a library that is linked with them works with
// one ABI. Here they are looked up. Source: libibverbs/{device.c,dummy_ops.c,init.c} of rdma-core v28.0 to
// v64.0.
#pragma once

#include <cstdint>

#include "rdma_core/layout.h"

namespace verbena::rdma_core {

struct Libibverbs {
  // Registers a driver: a pabi_device_ops, or a pabi_device_ops_28, that stays valid until the process ends.
  void (*register_driver)(const void* ops);

  // Allocates `size` zeroed bytes and initialises the verbs_context at `context_offset` in them. It becomes
  // a context of `device` whose operations all return EOPNOTSUPP. Its async_fd is -1, which makes
  // ibv_open_device(3) request an async descriptor from the kernel (rdma-core 31 and newer). nullptr:
  // failure, with errno.
  //
  // Takes ownership of `cmd_fd`. On failure the descriptor has been closed. On success uninit_context closes
  // it.
  void* (*init_and_alloc_context)(ibv_device* device, int cmd_fd, size_t size, void* context_offset,
                                  uint32_t driver_id);

  // Sets the operations that are not null in `ops`, a table of operations_of().
  void (*set_ops)(verbs_context* context, const Operation* ops);

  // Closes cmd_fd and async_fd, and releases what libibverbs holds for the context. The caller frees the
  // memory.
  void (*uninit_context)(verbs_context* context);
};

// Of the libibverbs that this library is linked with at run time. Any thread may call it. installed_layout()
// is not null.
const Libibverbs& libibverbs();

}  // namespace verbena::rdma_core
