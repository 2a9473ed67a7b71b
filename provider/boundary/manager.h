// SPDX-License-Identifier: BSD-2-Clause
//
// /dev/infiniband/rdma_cm: the one device file that is not opened as a placeholder. The connection manager
// lives in the provider's library beside this one, which is loaded now unless libibverbs has done so already
// (the same file is the same library to dlopen(3)), and stays.
#pragma once

namespace verbena {

// As open(2) of the device file. ENODEV: there is no provider here or it knows no rdma_cm, in a vfork child
// too; ENOMEM: too many device files are open; otherwise as verbena_rdma_cm_open (claim.h).
int open_manager(int flags);

}  // namespace verbena
