// SPDX-License-Identifier: BSD-2-Clause
//
// /dev/infiniband/rdma_cm, the only device file that is not opened as a placeholder. The connection
// manager is in the provider's library, which lies in the same folder as this library. open(2) loads the
// provider. If libibverbs has loaded it already, dlopen(3) does not load the same file again. It is never
// unloaded.
#pragma once

namespace verbena {

// open(2) of the device file.
// - ENODEV: no provider, a provider without rdma_cm, or a vfork child.
// - ENOMEM: too many device files are open.
// - Otherwise the errors of verbena_rdma_cm_open (claim.h).
int open_manager(int flags);

}  // namespace verbena
