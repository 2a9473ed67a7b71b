// SPDX-License-Identifier: BSD-2-Clause
//
// Failures in a scene of two queue pairs (error_scene.h): requests that must fail, memory that is gone, peers
// that leave or do not answer.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fabric/device_events.h"
#include "unit/common/scoped_membership.h"
#include "unit/engine/error_scene.h"

namespace verbena {

inline void go(ErrorScene& s, ibv_send_wr wr) { ASSERT_EQ(s.post(wr), 0); }
inline void go(ErrorScene& s, ibv_wr_opcode opcode, size_t length) {
  go(s, s.request(opcode, {s.local.sge(0, length)}));
}

// A request of 8 bytes with another remote address or key.
inline void go_to(ErrorScene& s, ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey) {
  ibv_send_wr wr = s.request(opcode, {s.local.sge(0, 8)});
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    wr.wr.atomic = {remote, 1, 1, rkey};
  else
    wr.wr.rdma = {remote, rkey};
  go(s, wr);
}
inline void send_with_key(ErrorScene& s, uint32_t lkey) {
  ibv_sge sge = s.local.sge(0, 8);
  sge.lkey = lkey;
  go(s, s.request(IBV_WR_SEND, {sge}));
}

// Registered memory that is mapped no more, in whole pages.
class Unmapped {
 public:
  explicit Unmapped(Pd* pd)
      : memory_(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    Mr* mr = nullptr;
    EXPECT_EQ(reg_mr(pd, memory_, kSize, address(), kAllAccess, &mr), 0);
    mr_.reset(mr);
    munmap(memory_, kSize);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  ibv_sge sge() const { return {address(), kSize, mr_lkey(mr_.get())}; }
  uint32_t rkey() const { return mr_rkey(mr_.get()); }

 private:
  static constexpr uint32_t kSize = 4096;
  void* memory_;
  Owned<Mr> mr_;
};

// Posts a BIND_MW of the window to the region; the window's rkey from then on.
inline uint32_t bind_window(ErrorScene& s, ibv_mr* region, Mw* window) {
  ibv_mw handle{};
  handle.rkey = mw_rkey(window);
  handle.type = IBV_MW_TYPE_2;
  ibv_send_wr wr = s.request(IBV_WR_BIND_MW, {});
  wr.bind_mw.mw = &handle;
  wr.bind_mw.rkey = ibv_inc_rkey(handle.rkey);
  wr.bind_mw.bind_info = {region, s.remote.address(), 64, IBV_ACCESS_REMOTE_WRITE};
  go(s, wr);
  return wr.bind_mw.rkey;
}
struct Window {
  explicit Window(ErrorScene& s) { EXPECT_EQ(alloc_mw(s.pd.get(), IBV_MW_TYPE_2, &mw), 0); }
  ~Window() { EXPECT_EQ(dealloc_mw(mw), 0); }
  Mw* mw = nullptr;
};

inline void port_down(ErrorScene& s) {
  uint32_t told = 0;
  ASSERT_EQ(raise_device_event(s.node.directory(), s.node.path(), 0, IBV_EVENT_PORT_ERR, &told), 0);
}

inline constexpr ErrorScene::Wanted kImpatient{.timeout = 1, .retry_cnt = 1, .rnr_retry = 0};

// Connects the requester to a process that then leaves the node.
inline void connect_to_one_that_leaves(ErrorScene& s) {
  ScopedMembership passer_by(s.node.path());
  ASSERT_EQ(passer_by.error, 0);
  const uint32_t index = 0;
  ASSERT_EQ(passer_by.membership.segment().commit(kQpTableOffset, sizeof(SharedQp)), 0);
  SharedQp& there = *passer_by.membership.segment().view().qp(index);
  there.qpn = s.node.directory().claim_qpn(passer_by.membership.slot(), index);
  there.incarnation = 1;
  there.in_use.store(1, std::memory_order_release);
  s.begin_again({.timeout = 1, .retry_cnt = 1, .peer = there.qpn});
}

// This request writes where the responder has eager data that nobody scatters: the CQ's lock is held here,
// which scattering takes.
inline void write_over_what_nobody_scatters(ErrorScene& s) {
  s.begin_again(kImpatient);
  s.post_receive({s.remote.sge(0, 8)});
  go(s, IBV_WR_SEND, 8);
  ASSERT_EQ(completion(s.send_cq.get()).status, IBV_WC_SUCCESS);
  {
    std::lock_guard busy(s.recv_cq->lock);
    go(s, IBV_WR_RDMA_WRITE, 8);
    ASSERT_TRUE(eventually([&] {
      poll_cq(s.send_cq.get(), 0, nullptr);
      return qp_state(s.requester()) == IBV_QPS_ERR;
    }));
  }
  ASSERT_EQ(completion(s.recv_cq.get()).status, IBV_WC_SUCCESS);
}

}  // namespace verbena
