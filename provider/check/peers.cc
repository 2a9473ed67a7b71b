// SPDX-License-Identifier: BSD-2-Clause
#include "check/peers.h"

#include "check/operations.h"

namespace verbena::check {

std::optional<PeerAttributes> find_new_peer(ibv_qp* qp) {
  if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) return std::nullopt;
  {
    const Locked locked;
    const auto* const known = find<QueuePair>(qp);
    if (known == nullptr || known->peer_rd_atomic >= 0 || known->state != IBV_QPS_RTS) return std::nullopt;
  }
  PeerAttributes peer;
  if (!provider().find_peer(qp, &peer)) return std::nullopt;
  return peer;
}

void compare_ends(QueuePair& qp, const PeerAttributes& peer, StackId posted) {
  if (qp.peer_rd_atomic >= 0) return;  // by another thread, meanwhile
  qp.peer_rd_atomic = peer.max_dest_rd_atomic;
  if (peer.dest_qp_num != qp.number_of_qp)
    report(rule("peer-mismatch"),
           text("%s: its peer has dest_qp_num 0x%06x", qp.name.c_str(), peer.dest_qp_num),
           {{"posted here", posted}, {"modified to RTS here", qp.modified}});
  if (const uint32_t mtu = bytes_of(peer.path_mtu); mtu != qp.mtu)
    report(rule("mtu-differs"),
           text("%s: path_mtu is %u bytes here, and %u at the other end", qp.name.c_str(), qp.mtu, mtu),
           {{"posted here", posted}, {"modified to RTS here", qp.modified}});
}

}  // namespace verbena::check
