// SPDX-License-Identifier: BSD-2-Clause
//
// Raw packet queue pairs (IBV_QPT_RAW_PACKET): each request is an Ethernet frame, which begins with the
// destination's address. All devices of the node are on one segment, the sender's included, and see every
// frame. The flow rules of a device (steering.h) decide which of its queue pairs get it. A frame does not
// leave the node.
//
// Rules, and their sources:
// - A frame has at least an Ethernet header, and at most the MTU of the port, an Ethernet header and a VLAN
// tag. Longer
//   is IBV_WC_LOC_LEN_ERR, shorter IBV_WC_LOC_QP_OP_ERR. (mlx5 posts no request without the header:
//   providers/mlx5/qp.c, mlx5_post_send_underlay() and copy_eth_inline_headers().)
// - Frames are not padded and have no FCS: what is received has the length of what was sent.
// - A queue pair without a receive request, or with one that is too small, drops the frame and counts it
// (SharedQp::
//   dropped), as a datagram.
// - The completion of a receive has neither source nor GRH: src_qp, slid, sl are 0.
// - Checksums are filled in for requests with IBV_SEND_IP_CSUM, and looked at for IBV_WC_IP_CSUM_OK
//   (rules/frame_checksum.h). What comes back is what was sent, so one look serves all receivers.
// - A sniffer sees what its port sends and receives. There are no packets of RDMA to see.
#pragma once

#include <memory>
#include <vector>

#include "engine/datagram/delivery.h"
#include "engine/ethernet/rss_table.h"
#include "fabric/flow_table.h"

namespace verbena {

struct Qp;
struct SendRequest;

// Who receives the frames of a rule: a queue pair, or the work queues that its hash chooses from.
struct RuleReceiver {
  std::unique_ptr<Destination> qp;                   // nullptr: it cannot be reached
  RssTable table;                                    // without queues: the queue pair itself receives
  std::vector<std::unique_ptr<Destination>> queues;  // of the table; nullptr: it is not there
};

struct FrameSender : DatagramSender {
  // The node's rules, and who receives: receivers[i] for rules[i].
  std::vector<FlowTable::Found> rules;
  std::vector<RuleReceiver> receivers;
  uint64_t version = UINT64_MAX;  // of the table; UINT64_MAX: none was read
  std::vector<uint32_t> hit;      // by the present frame
};

// Throws std::bad_alloc.
std::shared_ptr<FrameSender> make_frame_sender(const Qp& qp);

// Carries the request out, except for its completion. As send_datagram().
VendorError send_frame(Qp& qp, const SendOperation& operation, const SendRequest& request);

class Transport;
Transport& frame_transport();

}  // namespace verbena
