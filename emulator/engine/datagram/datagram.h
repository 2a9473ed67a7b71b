// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams (IBV_QPT_UD): no connection, no waiting, no acknowledgement. Each request goes to the queue pair
// that its address handle and QPN lead to, or to every member of a group, and is done; what cannot be taken
// there is dropped in silence, and counted.
//
// Rules, and where they come from:
//  * Dropped without a trace but SharedQp::dropped or qkey_violations: another Q_Key, no receive request,
//    one that is too small (it stays posted). Counted for the device alone, as its port's
//    (DirectoryHeader::stray_datagrams): nobody has the number, a QP of another type or in a state that does
//    not receive. InfiniBand Architecture Specification vol. 1, 9.8.3 and the responder's class D of 9.9.3;
//    rxe_recv.c hdr_check(), rxe_resp.c RESPST_ERR_RNR and RESPST_ERR_LENGTH; google/rdma-unit-test
//    unit/ud_test.cc. rxe spends the request where it comes from an SRQ; here it stays posted in either case.
//  * A receive request whose keys do not hold costs that request and puts the QP into ERR (class A).
//  * A message longer than the port's MTU is IBV_WC_LOC_LEN_ERR, as on mlx5 (unit/ud_test.cc,
//  SendLargerThanMtu).
//    rxe completes it with success and sends nothing (C10-93.1.1); programs are better served by the error,
//    which 11.6.2 has for messages that are too long for the port.
//  * A handle of another PD than the QP's is IBV_WC_LOC_QP_OP_ERR (11.4.1.1 leaves the choice between that
//  and an
//    immediate error).
//  * A remote_qkey with the high bit set means the QP's own Q_Key (10.2.5; rxe_verbs.c, rxe_req.c).
//  * The sender is a member like any other: attached, it receives what it sends to the group (ipoib_ib.c
//  drops such
//    copies by itself, since adapters deliver them).
#pragma once

#include <memory>

#include "engine/datagram/delivery.h"
#include "engine/objects/qp.h"

namespace verbena {

struct Datagrams;

// What a UD queue pair remembers of those it has sent to (datagram_targets.h). Under send_lock. The send
// queue is made already. Throws std::bad_alloc.
std::shared_ptr<Datagrams> make_datagrams(const Qp& qp);

// Carries the request out but for its completion. none: it has been sent, and raise_datagram_events() is due
// after its completion; otherwise why it could not be, and nobody has received it. The caller holds
// send_lock.
VendorError send_datagram(Qp& qp, const SendOperation& operation, const SendRequest& request);

// Must the request wait, since the way to the other node is full? The caller holds send_lock.
bool must_wait(Qp& qp, const SendRequest& request);

// Raises the events of the receive completions that send_datagram() has appended.
void raise_datagram_events(Qp& qp);

// A message from another node: `length` bytes with the room for the GRH. Nothing of it has been judged.
struct RemoteDatagram {
  const uint8_t* bytes;
  uint32_t length;
  uint32_t target_qpn;
  DatagramSource source;
  uint32_t qkey;
  uint32_t immediate;
  uint8_t flags;  // CqeFlags; others than kCqeWithImmediate and kCqeSolicited do not count
  ibv_gid destination;
};
// Delivers it to whom it is for on this node. `may_wait`: it is not dropped for want of a receive request (not for groups).
Delivery receive_remote_datagram(DatagramSender& from, const RemoteDatagram& datagram, bool may_wait = false);

// The request is kept for later: its handle is copied, since the program may destroy it after posting.
void keep_address(Qp& qp, SendRequest& kept);

}  // namespace verbena
