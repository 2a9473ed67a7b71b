// SPDX-License-Identifier: BSD-2-Clause
//
// Functions that libibverbs exports to providers only (symbol version IBVERBS_PRIVATE_34), as far as this
// provider uses them. Source: libibverbs/{device.c,dummy_ops.c,init.c} of rdma-core v44.0.
#pragma once

#include "rdma_core/pabi34_rdma_core36.h"

extern "C" {

// Registers a driver. `ops` must stay valid until the process ends.
void verbs_register_driver_34(const pabi34_device_ops* ops);

// Allocates `size` zeroed bytes and initialises the verbs_context at `context_offset` in them. It becomes
// a context of `device` whose operations all return EOPNOTSUPP. Its async_fd is -1, which makes
// ibv_open_device(3) request an async descriptor from the kernel. nullptr: failure, with errno.
//
// Takes ownership of `cmd_fd`. On failure the descriptor has been closed. On success verbs_uninit_context
// closes it.
void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, size_t size,
                                    verbs_context* context_offset, uint32_t driver_id);

// Sets the operations that are not null in `ops`.
void verbs_set_ops(verbs_context* context, const pabi34_context_ops* ops);

// Closes cmd_fd and async_fd, and releases what libibverbs holds for the context. The caller frees the
// memory.
void verbs_uninit_context(verbs_context* context);
}
