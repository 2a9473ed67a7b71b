// SPDX-License-Identifier: BSD-2-Clause
//
// The emulator as the provider sees it (emulator.h), with owners that clean up. A Scene has a node, a device
// and a protection domain; a Pair has two connected RC queue pairs on it.
#pragma once

#include <errno.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "adapter/clock.h"
#include "emulator.h"
#include "unit/common/temporary_node.h"

namespace verbena {

struct Destroy {
  void operator()(Context* context) const {
    const int fd = context_async_fd(context);
    close_context(context);
    close(fd);
  }
  void operator()(Pd* pd) const { EXPECT_EQ(dealloc_pd(pd), 0); }
  void operator()(Mr* mr) const { EXPECT_EQ(dereg_mr(mr), 0); }
  void operator()(Cq* cq) const {
    uint32_t completion_events, async_events;
    EXPECT_EQ(destroy_cq(cq, &completion_events, &async_events), 0);
  }
  void operator()(Qp* qp) const {
    uint32_t async_events;
    EXPECT_EQ(destroy_qp(qp, &async_events), 0);
  }
  void operator()(Srq* srq) const {
    uint32_t async_events;
    EXPECT_EQ(destroy_srq(srq, &async_events), 0);
  }
  void operator()(Xrcd* xrcd) const { EXPECT_EQ(close_xrcd(xrcd), 0); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

inline Owned<Context> open_device(const char* name = "verbena0") {
  Context* context = nullptr;
  EXPECT_EQ(open_context(name, &context), 0);
  return Owned<Context>(context);
}
inline Owned<Pd> make_pd(Context* context) {
  Pd* pd = nullptr;
  EXPECT_EQ(alloc_pd(context, &pd), 0);
  return Owned<Pd>(pd);
}
inline Owned<Cq> make_cq(Context* context, int entries = 256, int channel = -1, uint64_t handle = 0) {
  Cq* cq = nullptr;
  EXPECT_EQ(create_cq(context, entries, channel, 0, handle, &cq), 0);
  return Owned<Cq>(cq);
}
inline Owned<Srq> make_srq(Pd* pd, uint32_t requests, uint32_t sges) {
  ibv_srq_attr attr{requests, sges, 0};
  Srq* srq = nullptr;
  EXPECT_EQ(create_srq(pd, &attr, {}, 0, &srq), 0);
  return Owned<Srq>(srq);
}

// Registered bytes.
class Region {
 public:
  Region(Pd* pd, size_t size, int access = kAllAccess) : bytes_(size != 0 ? size : 1) {
    Mr* mr = nullptr;
    EXPECT_EQ(reg_mr(pd, bytes_.data(), bytes_.size(), address(), access, &mr), 0);
    mr_.reset(mr);
  }
  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  uint64_t address(uint64_t at = 0) const { return reinterpret_cast<uint64_t>(bytes_.data()) + at; }
  uint32_t lkey() const { return mr_lkey(mr_.get()); }
  uint32_t rkey() const { return mr_rkey(mr_.get()); }
  ibv_sge sge(uint64_t at, size_t length) const {
    return {address(at), static_cast<uint32_t>(length), lkey()};
  }
  void fill(uint8_t seed) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(seed + i * 7 + (i >> 8));
  }
  void clear() { std::fill(bytes_.begin(), bytes_.end(), uint8_t{0}); }
  void deregister() { mr_.reset(); }

 private:
  std::vector<uint8_t> bytes_;
  Owned<Mr> mr_;
};

struct QpSetup {
  uint32_t send_wr = 64, recv_wr = 64, sge = 4, inline_size = 0;
  bool shared_receives = false;  // receive requests are posted to an SRQ of the side's own
  bool all_signaled = false;
  uint8_t rnr_retry = 7, min_rnr_timer = 1;
  uint8_t timeout = 0, retry_cnt = 7;
  uint32_t sq_psn = 0, rq_psn = 0;
  uint8_t max_rd_atomic = 4, max_dest_rd_atomic = 4;
  unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
};

inline Owned<Qp> make_qp(Pd* pd, Cq* send_cq, Cq* recv_cq, const QpSetup& setup = {}, uint64_t handle = 0,
                         Srq* srq = nullptr) {
  ibv_qp_init_attr init{};
  init.cap = {setup.send_wr, setup.recv_wr, setup.sge, setup.sge, setup.inline_size};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = setup.all_signaled;
  Qp* qp = nullptr;
  EXPECT_EQ(create_qp(pd, &init, send_cq, recv_cq, handle, &qp, srq), 0);
  return Owned<Qp>(qp);
}

inline int to_state(Qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return modify_qp(qp, &attr, IBV_QP_STATE);
}
inline int to_init(Qp* qp, const QpSetup& setup = {}) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = setup.access;
  return modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}
inline int to_rtr(Qp* qp, uint32_t dest, const GidEntry& gid, const QpSetup& setup = {}) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = dest;
  attr.rq_psn = setup.rq_psn;
  attr.max_dest_rd_atomic = setup.max_dest_rd_atomic;
  attr.min_rnr_timer = setup.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  std::memcpy(attr.ah_attr.grh.dgid.raw, gid.raw.data(), 16);
  return modify_qp(qp, &attr,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}
inline int to_rts(Qp* qp, const QpSetup& setup = {}) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = setup.timeout;
  attr.retry_cnt = setup.retry_cnt;
  attr.rnr_retry = setup.rnr_retry;
  attr.sq_psn = setup.sq_psn;
  attr.max_rd_atomic = setup.max_rd_atomic;
  return modify_qp(qp, &attr,
                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC);
}
inline void connect(Qp* qp, uint32_t dest, const GidEntry& gid, const QpSetup& setup = {}) {
  EXPECT_EQ(to_init(qp, setup), 0);
  EXPECT_EQ(to_rtr(qp, dest, gid, setup), 0);
  EXPECT_EQ(to_rts(qp, setup), 0);
}

// ---- requests -----------------------------------------------------------------------------------------

using Sges = std::vector<ibv_sge>;

// A call of the data path. It leaves errno as it was (keep_errno.h).
template <typename Call>
int on_data_path(Call call) {
  constexpr int kUntouched = 12345;
  errno = kUntouched;
  const int result = call();
  EXPECT_EQ(errno, kUntouched);
  return result;
}

inline int post(Qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return on_data_path([&] { return post_send(qp, &wr, &bad); });
}
inline ibv_send_wr request(ibv_wr_opcode opcode, Sges& sges, uint64_t wr_id = 0,
                           unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.opcode = opcode;
  wr.send_flags = flags;
  return wr;
}
inline int send(Qp* qp, Sges sges, uint64_t wr_id = 0, unsigned flags = IBV_SEND_SIGNALED) {
  return post(qp, request(IBV_WR_SEND, sges, wr_id, flags));
}
// `opcode` is an RDMA operation.
inline int rdma(Qp* qp, ibv_wr_opcode opcode, Sges sges, uint64_t remote, uint32_t rkey, uint64_t wr_id = 0) {
  ibv_send_wr wr = request(opcode, sges, wr_id);
  wr.wr.rdma = {remote, rkey};
  return post(qp, wr);
}
inline int receive(Qp* qp, Sges sges, uint64_t wr_id = 0) {
  ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
  ibv_recv_wr* bad = nullptr;
  return on_data_path([&] { return post_recv(qp, &wr, &bad); });
}
inline int receive(Srq* srq, Sges sges, uint64_t wr_id = 0) {
  ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
  ibv_recv_wr* bad = nullptr;
  return on_data_path([&] { return post_srq_recv(srq, &wr, &bad); });
}

// Polls until there are `count` completions, 20 seconds at most.
inline std::vector<ibv_wc> completions(Cq* cq, size_t count) {
  std::vector<ibv_wc> all;
  for (const int64_t end = now_ns() + 20'000'000'000; all.size() < count && now_ns() < end;) {
    ibv_wc wc{};
    const int got = on_data_path([&] { return poll_cq(cq, 1, &wc); });
    if (got < 0) break;
    if (got == 1)
      all.push_back(wc);
    else
      sched_yield();
  }
  EXPECT_EQ(all.size(), count) << "completions";
  return all;
}
inline ibv_wc completion(Cq* cq) {
  const auto all = completions(cq, 1);
  ibv_wc none{};
  none.status = IBV_WC_GENERAL_ERR;
  return all.empty() ? none : all[0];
}
inline bool nothing(Cq* cq) {
  ibv_wc wc;
  return on_data_path([&] { return poll_cq(cq, 1, &wc); }) == 0;
}

struct AsyncEvent {
  uint64_t element;
  uint32_t type;
  uint32_t reserved;
};
// The next asynchronous event within 20 seconds; type UINT32_MAX: none.
inline AsyncEvent async_event(Context* context, int timeout_ms = 20000) {
  pollfd readable{context_async_fd(context), POLLIN, 0};
  AsyncEvent event{0, UINT32_MAX, 0};
  if (poll(&readable, 1, timeout_ms) != 1 || read(readable.fd, &event, sizeof event) != sizeof event)
    return {0, UINT32_MAX, 0};
  return event;
}
// The CQ handle of the next completion event on a channel within `timeout_ms`; UINT64_MAX: none.
inline uint64_t completion_event(int channel, int timeout_ms = 20000) {
  pollfd readable{channel, POLLIN, 0};
  uint64_t handle = UINT64_MAX;
  if (poll(&readable, 1, timeout_ms) != 1 || read(channel, &handle, sizeof handle) != sizeof handle)
    return UINT64_MAX;
  return handle;
}

// ---- scenes -----------------------------------------------------------------------------------------------

struct Scene {
  explicit Scene(LinkLayer link_layer = LinkLayer::kEthernet)
      : node({.count = 2, .link_layer = link_layer}) {}

  TemporaryNode node;
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());

  const GidEntry& gid(uint32_t device = 0) const {
    return node.directory().devices().devices[device].ports[0].gids[0];
  }
};

struct Side {
  Owned<Cq> send_cq, recv_cq;
  Owned<Srq> srq;  // of QpSetup::shared_receives
  Owned<Qp> qp;
  ibv_wc sent() const { return completion(send_cq.get()); }
  ibv_wc received() const { return completion(recv_cq.get()); }
  uint32_t number() const { return qp_number(qp.get()); }
  Qp* operator*() const { return qp.get(); }
};

struct Pair : Scene {
  explicit Pair(const QpSetup& setup = {}) : Pair(setup, setup) {}
  Pair(const QpSetup& left, const QpSetup& right) : a(make(left, 0xa)), b(make(right, 0xb)) {
    connect(*a, b.number(), gid(), left);
    connect(*b, a.number(), gid(), right);
  }
  Side make(const QpSetup& setup, uint64_t handle) {
    Side side;
    side.send_cq = make_cq(context.get(), 512);
    side.recv_cq = make_cq(context.get(), 512);
    if (setup.shared_receives) side.srq = make_srq(pd.get(), setup.recv_wr, setup.sge);
    side.qp = make_qp(pd.get(), side.send_cq.get(), side.recv_cq.get(), setup, handle, side.srq.get());
    return side;
  }
  Side a, b;
};

}  // namespace verbena
