// SPDX-License-Identifier: BSD-2-Clause
//
// Conversion between the structures of the connection manager and those of <rdma/rdma_user_cm.h>. Pure
// functions. In the kernel: ucma_copy_* and ucma_query_* in drivers/infiniband/core/ucma.c, and
// uverbs_marshall.c.
#pragma once

#include "cm/cm.h"
#include "rdma_cm/abi.h"

namespace verbena::rdma_cm {

// All fields except uid and id.
rdma_ucm_event_resp to_response(const cm::Event& event);

ib_uverbs_qp_attr to_response(const ibv_qp_attr& attr, int mask);

cm::ConnectionParameters from_request(const rdma_ucm_conn_param& parameters);
inline cm::Ece from_request(const rdma_ucm_ece& ece) { return {ece.vendor_id, ece.attr_mod}; }

// `size` bytes (at most 255) of private data.
cm::PrivateData private_data(const uint8_t* bytes, uint8_t size);

// The responses to QUERY_ROUTE and to QUERY with each of its options.
rdma_ucm_query_route_resp route_response(const cm::Route& route);
rdma_ucm_query_addr_resp address_response(const cm::Route& route);
rdma_ucm_query_addr_resp gid_response(const cm::Route& route, cm::PortSpace space);
ib_path_rec_data path_response(const ib_user_path_rec& path);

}  // namespace verbena::rdma_cm
