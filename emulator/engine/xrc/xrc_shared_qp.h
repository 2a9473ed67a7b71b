// SPDX-License-Identifier: BSD-2-Clause
//
// XRC_RECV queue pairs that several processes hold open (ibv_open_qp(3); kernel, verbs.c, ib_open_qp() and
// __ib_destroy_shared_qp()). The queue pair lies in the adapter of the process that made it, its owner. Who
// opens it elsewhere has an entry in the node's table (fabric/xrc_domains.h) and a Qp that only stands for
// it:
//
//  * The queue pair lives until its last handle, in whatever process, is destroyed: an owner that has
//  destroyed his own
//    keeps it as an orphaned QP until nobody else holds it.
//  * Its events go to every handle: the owner writes them into SharedQp::events_told and wakes the others.
//  * It outlives its owner, and the context that it was made on: one of the other holders takes it over, with
//  its
//    number, state and PSN, and is its owner from then on (xrc_succession.cc). Only if nobody can, the
//    handles get IBV_EVENT_QP_FATAL, and the state is ERR.
//  * It is modified from everywhere: the owner is asked (fabric/control_rpc.h), and answers in its service
//    thread.
//  One that is
//    stopped does not: ETIMEDOUT, after five seconds.
#pragma once

#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"

namespace verbena {

// Where the queue pair is.
struct QpLocation {
  std::shared_ptr<PeerAdapter> owner;
  SharedQp* there = nullptr;
  uint32_t index = 0;
  uint32_t incarnation = 0;
};

struct ProxyQp final : QpLocation, QpProxy {
  int modify(Qp& qp, const ibv_qp_attr& attr, int mask) override;
  int query(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) override;

  uint32_t entry = 0;  // in the node's table
  uint64_t events_seen = 0;
  int64_t give_up_at = 0;  // ns: an owner that we have not met is dead, and somebody else is to come; 0: no
  bool lost = false;       // it has ended, and the program was told
  SharedQp placeholder{};     // what Qp::shared points to: in RESET, for good
};

// What `qp`, which is a handle on another process's queue pair, stands for.
inline ProxyQp& foreign_of(const Qp& qp) { return static_cast<ProxyQp&>(*qp.proxy); }

// Is it where it was, in use, and its owner alive?
bool still_there(const Process& process, const QpLocation& proxy);

// ---- of a handle on another process's queue pair ----
int open_proxy_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out);
uint32_t close_proxy_qp(Qp* qp, uint64_t user_handle);  // how many of its events the program has read

}  // namespace verbena
