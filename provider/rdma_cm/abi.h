// SPDX-License-Identifier: BSD-2-Clause
//
// The structures of the commands. libc's addresses are included first, so that <linux/in6.h> omits its own
// (linux/libc-compat.h), and all files use the same sockaddr_in6.
#pragma once

// clang-format off
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
// clang-format on
#include <cstdint>

namespace verbena::rdma_cm {

// Commands and events of Linux 6.17 that the installed <rdma/rdma_user_cm.h> and <rdma/rdma_cma.h> may lack.
inline constexpr uint32_t kWriteCmEvent = 24;   // RDMA_USER_CM_CMD_WRITE_CM_EVENT
inline constexpr uint32_t kUserEvent = 18;      // RDMA_CM_EVENT_USER
inline constexpr uint32_t kInternalEvent = 19;  // RDMA_CM_EVENT_INTERNAL

// The head of struct rdma_ucm_write_cm_event, whose union is longer.
struct WriteCmEvent {
  uint32_t id;
  uint32_t reserved;
  uint32_t event;
  uint32_t status;
  uint64_t argument;
};

}  // namespace verbena::rdma_cm
