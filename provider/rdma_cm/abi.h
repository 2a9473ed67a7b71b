// SPDX-License-Identifier: BSD-2-Clause
//
// The structures of the commands. libc's addresses are included first, so that <linux/in6.h> omits its own
// (linux/libc-compat.h), and all files use the same sockaddr_in6.
#pragma once

// clang-format off
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
// clang-format on
