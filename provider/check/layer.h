// SPDX-License-Identifier: BSD-2-Clause
//
// The checker stands between libibverbs and the provider: a table of operations with the same signatures on
// both sides. `verbena check` preloads the library; the provider finds it with dlsym(RTLD_DEFAULT, ...) when
// a device is opened, and gives libibverbs the checker's table instead of its own. Without the checker
// nothing is different.
#pragma once

#include <infiniband/verbs.h>

#include "insight.h"
#include "rdma_core/layout.h"

extern "C" {

// What the checker asks the provider for. All of it may be called in any thread. Under the model's lock only
// what takes no lock: the program may free memory while a lock of the adapter is held (memory_hooks.cc).
struct verbena_check_provider {
  const verbena::rdma_core::ContextOps* operations;
  // The work requests built since ibv_wr_start, as a list. nullptr: none, or the batch is not open.
  ibv_send_wr* (*open_batch)(ibv_qp_ex* qp);
  // The completion that the program reads between ibv_start_poll and ibv_end_poll.
  const ibv_wc* (*current)(ibv_cq_ex* cq);
  uint32_t (*waiting)(ibv_cq* cq);  // completions that wait to be polled; takes a lock
  bool (*has_overrun)(ibv_cq* cq);  // has a completion found no room? Takes no lock.
  // In ERR or RESET, or about to be because the peer has failed? Takes no lock.
  bool (*is_flushing)(ibv_qp* qp);
  uint32_t (*rnr_naks)(ibv_qp* qp);  // that it has received. Takes no lock.
  // The other end of a connection, if it is on this node and in RTR or RTS. Takes a lock.
  bool (*find_peer)(ibv_qp* qp, verbena::PeerAttributes* out);
  // The bytes that an RDMA WRITE would change, if the other end is on this node (insight.h). Takes a lock.
  bool (*read_target)(ibv_qp* qp, uint64_t address, uint32_t rkey, void* to, uint32_t length);
  // Each later message of the log goes to `sink` as well, from level warn on, in the thread that caused it.
  // `text` is one line without a line feed.
  void (*listen)(void (*sink)(int level, const char* text));
};

struct verbena_check_layer {
  const verbena::rdma_core::ContextOps* operations;  // lives until the process ends
  void (*opened)(ibv_context* context);              // a device was opened: `context` has these operations
};

#define VERBENA_CHECK_ATTACH "verbena_check_attach"
// nullptr: nothing is checked. `provider` is copied; a second call returns the same.
using verbena_check_attach_fn = const verbena_check_layer* (*)(const verbena_check_provider* provider);
}
