// SPDX-License-Identifier: BSD-2-Clause
//
// The functions that libibverbs exports to providers alone (symbol version IBVERBS_PRIVATE_34) and that we
// use. Source: libibverbs/{device.c,dummy_ops.c,init.c} of rdma-core v44.0.
#pragma once

#include "rdma_core/pabi34_rdma_core36.h"

extern "C" {

// Makes a driver known. `ops` must live as long as the process.
void verbs_register_driver_34(const pabi34_device_ops* ops);

// Allocates `size` zeroed bytes and makes the verbs_context at offset `context_offset` in it a context of
// `device` on which every operation answers EOPNOTSUPP. Takes over `cmd_fd`: on failure (nullptr, errno) it
// has been closed; afterwards verbs_uninit_context closes it. async_fd is then -1, which makes
// ibv_open_device(3) ask the kernel for one.
void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, size_t size,
                                    verbs_context* context_offset, uint32_t driver_id);

// Replaces the operations that are not null in `ops`.
void verbs_set_ops(verbs_context* context, const pabi34_context_ops* ops);

// Closes cmd_fd and async_fd and gives back what libibverbs holds for the context; the caller frees the
// memory.
void verbs_uninit_context(verbs_context* context);
}
