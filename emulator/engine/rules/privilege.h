// SPDX-License-Identifier: BSD-2-Clause
//
// Capabilities that the kernel would demand of the calling thread.
#pragma once

namespace verbena {

// CAP_NET_RAW: controlled Q_Keys, with the top bit set, may be given to a QP (kernel, uverbs_cmd.c,
// modify_qp()).
bool may_set_controlled_qkeys();

// CAP_NET_RAW: raw packet QPs and flow rules (uverbs_cmd.c, create_qp() and ib_uverbs_ex_create_flow()).
bool may_use_raw_packets();

}  // namespace verbena
