// SPDX-License-Identifier: BSD-2-Clause
//
// Enumerators of <infiniband/verbs.h> and <rdma/rdma_cma.h> by name, for messages: IBV_WC_REM_ACCESS_ERR,
// not 10. GoogleTest finds the PrintTo functions by the types of what is compared.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <iosfwd>
#include <string>

namespace conformance {

// The enumerator, or "ibv_wc_status 77" for a value that has none.
std::string name_of(ibv_wc_status value);
std::string name_of(ibv_wc_opcode value);
std::string name_of(ibv_wr_opcode value);
std::string name_of(ibv_qp_state value);
std::string name_of(ibv_qp_type value);
std::string name_of(ibv_mig_state value);
std::string name_of(ibv_mtu value);
std::string name_of(ibv_port_state value);
std::string name_of(ibv_atomic_cap value);
std::string name_of(ibv_event_type value);
std::string name_of(ibv_srq_type value);
std::string name_of(rdma_cm_event_type value);

// "IBV_SEND_SIGNALED|IBV_SEND_INLINE", or "0".
std::string send_flags_text(unsigned flags);

}  // namespace conformance

// In the namespace of the types, which is the global one: GoogleTest looks there.
void PrintTo(ibv_wc_status value, std::ostream* out);
void PrintTo(ibv_wc_opcode value, std::ostream* out);
void PrintTo(ibv_wr_opcode value, std::ostream* out);
void PrintTo(ibv_qp_state value, std::ostream* out);
void PrintTo(ibv_qp_type value, std::ostream* out);
void PrintTo(ibv_mig_state value, std::ostream* out);
void PrintTo(ibv_mtu value, std::ostream* out);
void PrintTo(ibv_port_state value, std::ostream* out);
void PrintTo(ibv_atomic_cap value, std::ostream* out);
void PrintTo(ibv_event_type value, std::ostream* out);
void PrintTo(ibv_srq_type value, std::ostream* out);
void PrintTo(rdma_cm_event_type value, std::ostream* out);
