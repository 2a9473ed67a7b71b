// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams (IBV_QPT_UD): no connection, no waiting, no acknowledgement. Each request goes to the queue pair that its
// address handle and QPN lead to, or to every member of a group, and is complete. A datagram that cannot be received
// is dropped and counted; the sender is not told.
//
// Rules, and their sources:
// - Dropped, and counted by the queue pair (SharedQp::dropped, qkey_violations): another Q_Key, no receive WQE, or one
//   that is too small (it stays posted).
// - Dropped, and counted for the port of the device (stray.h): no queue pair has the number,
//   or it is of another type, or in a state that does not receive.
//   InfiniBand Architecture Specification vol. 1, 9.8.3, and class D of the responder in 9.9.3; rxe_recv.c hdr_check(),
//   rxe_resp.c RESPST_ERR_RNR and RESPST_ERR_LENGTH; google/rdma-unit-test unit/ud_test.cc. With an SRQ, rxe consumes
//   the WQE; here it stays posted in either case.
// - Invalid keys of a receive WQE consume that WQE and put the QP into ERR (class A).
// - A message longer than the MTU of the port is IBV_WC_LOC_LEN_ERR, as on mlx5 (unit/ud_test.cc,
//   SendLargerThanMtu). rxe completes it with success and sends nothing (C10-93.1.1). The error serves programs better;
//   11.6.2 has it for messages that are too long for the port.
// - An address handle of another PD than the QP's is IBV_WC_LOC_QP_OP_ERR (11.4.1.1 allows that or an immediate error).
// - A remote_qkey with the high bit set means the Q_Key of the QP (10.2.5; rxe_verbs.c, rxe_req.c).
// - The sender is a member like any other: if it is attached, it receives its own messages to the group (ipoib_ib.c
//   drops such copies itself, because adapters deliver them).
#pragma once

#include <memory>

#include "engine/datagram/delivery.h"
#include "engine/objects/qp.h"

namespace verbena {

struct Datagrams;

// Creates the table of destinations of a UD queue pair (datagram_targets.h). Under send_lock, after its send
// queue. Throws std::bad_alloc.
std::shared_ptr<Datagrams> make_datagrams(const Qp& qp);

// Carries the request out, except for its completion. none: it was sent, and raise_datagram_events() must
// follow its completion. Otherwise the reason, and the datagram was not delivered. The caller holds
// send_lock.
VendorError send_datagram(Qp& qp, const SendOperation& operation, const SendRequest& request);

// Must the request wait, because the path to the other node is full? The caller holds send_lock.
bool must_wait(Qp& qp, const SendRequest& request);

// Raises the events of the receive completions that send_datagram() has appended.
void raise_datagram_events(Qp& qp);

// A message from another node: `length` bytes, with space for the GRH. No field has been checked.
struct RemoteDatagram {
  const uint8_t* bytes;
  uint32_t length;
  uint32_t target_qpn;
  DatagramSource source;
  uint32_t qkey;
  uint32_t immediate;
  uint8_t flags;  // CqeFlags; only kCqeWithImmediate and kCqeSolicited are used
  ibv_gid destination;
};
// Delivers it to its destination on this node. `may_wait`: without a receive WQE it is not dropped (not for
// groups).
Delivery receive_remote_datagram(DatagramSender& from, const RemoteDatagram& datagram, bool may_wait = false);

// The request is kept in the send queue: its address handle is copied, because the program may destroy it
// after posting.
void keep_address(Qp& qp, SendRequest& kept);

}  // namespace verbena
