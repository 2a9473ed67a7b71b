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

#include "engine/objects.h"

namespace verbena {

// Where the queue pair is.
struct QpLocation {
  std::shared_ptr<PeerAdapter> owner;
  SharedQp* there = nullptr;
  uint32_t index = 0;
  uint32_t incarnation = 0;
};

struct ProxyQp : QpLocation {
  uint32_t entry = 0;  // in the node's table
  uint64_t events_seen = 0;
  int64_t give_up_at = 0;  // ns: an owner that we have not met is dead, and somebody else is to come; 0: no
  bool lost = false;       // it has ended, and the program was told
  SharedQp placeholder{};     // what Qp::shared points to: in RESET, for good
};

// Is it where it was, in use, and its owner alive?
bool still_there(const Process& process, const QpLocation& proxy);

// Events in SharedQp::events_told: how many there were (16 bits), and the types of the last six, the newest
// lowest.
struct ToldEvents {
  static constexpr int kKept = 6;
  static constexpr uint64_t count_of(uint64_t word) { return word >> 48; }
  static constexpr uint64_t with(uint64_t word, uint8_t type) {
    return (count_of(word) + 1) << 48 | (word << 8 & 0xffff'ffff'ff00) | type;
  }
  // The one before the newest `ago` ones.
  static constexpr uint8_t type(uint64_t word, int ago) { return static_cast<uint8_t>(word >> (8 * ago)); }
};

// ---- of a handle on another process's queue pair ----
int open_proxy_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out);
int query_proxy_qp(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init);
// As modify_qp; EIO: it has ended; ETIMEDOUT: its owner does not answer.
int modify_proxy_qp(Qp& qp, const ibv_qp_attr& attr, int mask);
uint32_t close_proxy_qp(Qp* qp, uint64_t user_handle);  // how many of its events the program has read

// ---- at the owner's ----
// An event of `type` is told to those who hold the queue pair elsewhere.
void tell_holders(Qp& qp, ibv_event_type type);
// The owner's context closes: what others still hold they take over, the rest ends.
void leave_xrc_qps_of(Context& context);

}  // namespace verbena
