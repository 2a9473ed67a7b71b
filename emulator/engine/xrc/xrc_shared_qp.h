// SPDX-License-Identifier: BSD-2-Clause
//
// XRC_RECV queue pairs that several processes hold open (ibv_open_qp(3); kernel, verbs.c, ib_open_qp() and
// __ib_destroy_shared_qp()). The queue pair lies in the adapter of the process that created it, its owner.
// Another process that opens it has an entry in the node's table (fabric/xrc_domains.h) and a Qp that is a
// proxy.
//
// - The queue pair lives until its last handle in any process is destroyed. An owner that has destroyed its
// own handle
//   keeps an orphaned QP until no other process holds it.
// - Events go to every handle: the owner writes them into SharedQp::events_told and wakes the other
// processes.
// - The queue pair outlives its owner, and the context that it was created on. One of the other holders
// becomes the
//   owner, and keeps number, state and PSN (xrc_succession.cc). If none can, the state is ERR, and the
//   handles get IBV_EVENT_QP_FATAL.
// - Every process may modify it: the owner is asked (fabric/control_rpc.h), and replies in its service
// thread. If the
//   owner is stopped, the call ends with ETIMEDOUT after 5 s.
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
  int64_t give_up_at = 0;  // ns: an unknown owner is dead, and a successor is awaited until then; 0: no
  bool lost = false;       // it has ended, and the program was told
  SharedQp placeholder{};  // what Qp::shared points to: in RESET, for good
};

// The proxy of `qp`, which is a handle on the queue pair of another process.
inline ProxyQp& proxy_of(const Qp& qp) { return static_cast<ProxyQp&>(*qp.proxy); }

// Is the queue pair still in use where it was, and its owner alive?
bool still_there(const Process& process, const QpLocation& proxy);

// ---- handles on queue pairs of other processes ----
int open_proxy_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out);
uint32_t close_proxy_qp(Qp* qp, uint64_t user_handle);  // returns how many of its events the program has read

}  // namespace verbena
