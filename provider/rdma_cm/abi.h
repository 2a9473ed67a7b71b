// SPDX-License-Identifier: BSD-2-Clause
//
// The commands' structures. libc's addresses come first: <linux/in6.h> then leaves its own out
// (linux/libc-compat.h), and every file of the program means the same sockaddr_in6.
#pragma once

// clang-format off
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
// clang-format on
