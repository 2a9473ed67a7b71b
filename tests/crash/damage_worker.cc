// SPDX-License-Identifier: BSD-2-Clause
#include "crash/damage_worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "adapter/clock.h"
#include "cm/cm.h"
#include "emulator.h"

namespace verbena::damage {
namespace {

constexpr uint32_t kQkey = 0x1234;
constexpr size_t kBytes = 64 * 1024;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr ibv_gid kGroup = {{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};

// The ids that arrive with requests; the session destroys them.
class Arrivals {
 public:
  static bool handle(void* self, const cm::Event& event) {
    if (event.type != cm::EventType::kConnectRequest) return true;
    auto& arrivals = *static_cast<Arrivals*>(self);
    const std::lock_guard lock(arrivals.mutex_);
    arrivals.ids_.push_back(event.id);
    return true;
  }
  std::vector<cm::Id*> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ids_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<cm::Id*> ids_;
};

class Session {
 public:
  Session(Shared& shared, uint32_t me, const GidEntry& gid, std::mt19937_64& random)
      : shared_(shared), report_(shared.workers[me]), me_(me), gid_(gid), random_(random), memory_(kBytes) {}

  void run(uint32_t rounds) {
    report_.sessions.fetch_add(1);
    if (open()) {
      for (uint32_t i = 0; i < rounds && !shared_.stop; ++i) round();
    }
    close();
  }

 private:
  template <typename Call>
  int call(const char* name, Call&& body) {
    report_.since_ns.store(now_ns());
    report_.call.store(name);
    const int result = body();
    report_.call.store(nullptr);
    report_.calls.fetch_add(1);
    return result;
  }
  uint64_t any(uint64_t below) { return random_() % below; }
  Report& peer() { return shared_.workers[any(kWorkers)]; }  // itself, too

  // False: it cannot even begin.
  bool open() {
    if (call("open_context", [&] { return open_context("verbena0", &context_); }) != 0) return false;
    if (call("alloc_pd", [&] { return alloc_pd(context_, &pd_); }) != 0) return false;
    call("reg_mr", [&] {
      return reg_mr(pd_, memory_.data(), kBytes, reinterpret_cast<uint64_t>(memory_.data()), kAccess, &mr_);
    });
    if (mr_ == nullptr) return false;
    call("create_comp_channel", [&] { return create_comp_channel(context_, &channel_); });
    if (call("create_cq", [&] { return create_cq(context_, 128, channel_, 0, 1, &cq_); }) != 0) return false;
    ibv_srq_attr srq{16, 2, 0};
    call("create_srq", [&] { return create_srq(pd_, &srq, {}, 2, &srq_); });
    call("open_xrcd", [&] { return open_xrcd(context_, -1, O_CREAT, &xrcd_); });
    if (xrcd_ != nullptr) {
      call("create_srq", [&] { return create_srq(pd_, &srq, {xrcd_, cq_}, 2, &xrc_srq_); });
      call("create_xrc_recv_qp", [&] { return create_xrc_recv_qp(xrcd_, 3, &xrc_); });
    }
    make(IBV_QPT_RC, &rc_, nullptr);
    make(IBV_QPT_RC, &rc_of_srq_, srq_);
    make(IBV_QPT_UC, &uc_, nullptr);
    make(IBV_QPT_UD, &ud_, nullptr);
    report_.rkey = mr_rkey(mr_);
    report_.address = reinterpret_cast<uint64_t>(memory_.data());
    if (rc_ != nullptr) report_.rc = qp_number(any(2) != 0 || rc_of_srq_ == nullptr ? rc_ : rc_of_srq_);
    if (ud_ != nullptr) report_.ud = qp_number(ud_);
    if (xrc_srq_ != nullptr) report_.srqn = srq_number(xrc_srq_);
    if (xrc_ != nullptr) report_.xrc = qp_number(xrc_);
    open_cm();
    return true;
  }

  void make(ibv_qp_type type, Qp** out, Srq* srq) {
    ibv_qp_init_attr init{};
    init.cap = {16, 16, 2, 2, 64};
    init.qp_type = type;
    call("create_qp", [&] { return create_qp(pd_, &init, cq_, cq_, 4, out, srq); });
  }

  void open_cm() {
    if (call("acquire_service", [&] { return cm::acquire_service(&service_); }) != 0) return;
    listener_ = bound_id();
    if (listener_ == nullptr) return;
    call("listen", [&] { return cm::listen(listener_, 8); });
    cm::Route route{};
    call("query", [&] { return cm::query(listener_, &route), 0; });
    report_.port = reinterpret_cast<const sockaddr_in&>(route.source).sin_port;
  }
  cm::Id* bound_id() {
    cm::Id* id = nullptr;
    if (call("create_id", [&] {
          return cm::create_id(service_, cm::PortSpace::kTcp, IBV_QPT_RC, Arrivals::handle, &arrivals_, &id);
        }) != 0)
      return nullptr;
    const sockaddr_in at = address(0);
    call("bind_address", [&] { return cm::bind_address(id, reinterpret_cast<const sockaddr*>(&at)); });
    return id;
  }
  static sockaddr_in address(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = port;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }

  void round() {
    switch (any(16)) {
      case 0:
        return connect(rc_, peer().rc);
      case 1:
        return connect(rc_of_srq_, peer().rc);
      case 2:
        return connect(uc_, peer().rc);
      case 3:
        return prepare_datagrams();
      case 4:
        return join_and_leave();
      case 5:
        return call_somebody();
      case 6:
        return answer_calls();
      case 7:
        return share_xrc();
      case 8:
        return change_keys();
      case 9:
        return (void)call("resize_cq", [&] { return resize_cq(cq_, 64 << any(3)); });
      default:
        return exchange();
    }
  }

  void to_reset(Qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = any(2) != 0 ? IBV_QPS_ERR : IBV_QPS_RESET;
    call("modify_qp to ERR or RESET", [&] { return modify_qp(qp, &attr, IBV_QP_STATE); });
    attr.qp_state = IBV_QPS_RESET;
    call("modify_qp to RESET", [&] { return modify_qp(qp, &attr, IBV_QP_STATE); });
  }
  void connect(Qp* qp, uint32_t to) {
    if (qp == nullptr || to == 0) return;
    to_reset(qp);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    call("modify_qp to INIT", [&] {
      return modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    });
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = path();
    call("modify_qp to RTR", [&] {
      int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      if (qp != uc_) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      return modify_qp(qp, &attr, mask);
    });
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;  // 1 ms
    attr.retry_cnt = attr.rnr_retry = 1;
    attr.max_rd_atomic = 4;
    call("modify_qp to RTS", [&] {
      int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
      if (qp != uc_) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      return modify_qp(qp, &attr, mask);
    });
  }
  ibv_ah_attr path() const {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.hop_limit = 64;
    std::memcpy(attr.grh.dgid.raw, gid_.raw.data(), 16);
    return attr;
  }

  void prepare_datagrams() {
    if (ud_ == nullptr) return;
    to_reset(ud_);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    call("modify_qp to INIT",
         [&] { return modify_qp(ud_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY); });
    attr.qp_state = IBV_QPS_RTR;
    call("modify_qp to RTR", [&] { return modify_qp(ud_, &attr, IBV_QP_STATE); });
    attr.qp_state = IBV_QPS_RTS;
    call("modify_qp to RTS", [&] { return modify_qp(ud_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN); });
    if (ah_.emulated != nullptr) return;
    ibv_ah_attr to = path();
    call("create_ah", [&] { return create_ah(pd_, &to, &ah_.emulated); });
  }

  void join_and_leave() {
    if (ud_ == nullptr) return;
    call("attach_mcast", [&] { return attach_mcast(ud_, &kGroup, 0); });
    if (ah_.emulated != nullptr) send_datagram(0xffffff);
    call("detach_mcast", [&] { return detach_mcast(ud_, &kGroup, 0); });
  }

  void share_xrc() {
    Qp* other = nullptr;
    uint32_t events;
    if (xrcd_ == nullptr || xrc_ == nullptr) return;
    if (call("open_qp", [&] { return open_qp(context_, xrcd_, qp_number(xrc_), 5, &other); }) != 0) return;
    call("close_qp", [&] { return close_qp(other, 5, &events); });
  }

  void change_keys() {
    Mr* more = nullptr;
    if (call("reg_mr", [&] {
          return reg_mr(pd_, memory_.data(), 4096, reinterpret_cast<uint64_t>(memory_.data()), kAccess,
                        &more);
        }) != 0)
      return;
    call("dereg_mr", [&] { return dereg_mr(more); });
  }

  void call_somebody() {
    if (service_ == nullptr) return;
    cm::Id* const id = bound_id();
    if (id == nullptr) return;
    const sockaddr_in to = address(peer().port);
    call("resolve_address",
         [&] { return cm::resolve_address(id, nullptr, reinterpret_cast<const sockaddr*>(&to), 100); });
    call("resolve_route", [&] { return cm::resolve_route(id, 100); });
    call("connect", [&] { return cm::connect(id, {}, {}); });
    call("destroy_id", [&] { return cm::destroy_id(id), 0; });
  }
  void answer_calls() {
    for (cm::Id* id : arrivals_.take()) {
      if (any(2) != 0) call("reject", [&] { return cm::reject(id, {}, 0); });
      call("destroy_id", [&] { return cm::destroy_id(id), 0; });
    }
  }

  ibv_sge sge(uint32_t length) {
    const uint64_t at = any(kBytes - length);
    return {reinterpret_cast<uint64_t>(memory_.data()) + at, length, mr_lkey(mr_)};
  }
  void receive(Qp* qp) {
    ibv_sge where = sge(8192);
    ibv_recv_wr wr{0, nullptr, &where, 1}, *bad = nullptr;
    call("post_recv", [&] { return post_recv(qp, &wr, &bad); });
  }
  void send(Qp* qp) {
    constexpr uint32_t kSizes[] = {0, 8, 32, 100, 256, 257, 5000};
    constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,
                                          IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                          IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD};
    const Report& to = peer();
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = kOpcodes[any(qp == uc_ ? 4 : 6)];
    ibv_sge from = sge(wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : kSizes[any(7)]);
    wr.sg_list = &from;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {to.address, 1, 0, to.rkey};
    else
      wr.wr.rdma = {to.address, to.rkey};
    call("post_send", [&] { return post_send(qp, &wr, &bad); });
  }
  void send_datagram(uint32_t to) {
    ibv_sge from = sge(static_cast<uint32_t>(any(1024)));
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &from;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {&ah_.base, to, kQkey};
    call("post_send of a datagram", [&] { return post_send(ud_, &wr, &bad); });
  }

  void exchange() {
    for (Qp* qp : {rc_, uc_, ud_})
      if (qp != nullptr) receive(qp);
    if (srq_ != nullptr) {
      ibv_sge where = sge(8192);
      ibv_recv_wr wr{0, nullptr, &where, 1}, *bad = nullptr;
      call("post_srq_recv", [&] { return post_srq_recv(srq_, &wr, &bad); });
    }
    for (Qp* qp : {rc_, uc_, rc_of_srq_})
      if (qp != nullptr) send(qp);
    if (ah_.emulated != nullptr && ud_ != nullptr) send_datagram(peer().ud);
    if (any(4) == 0) call("req_notify_cq", [&] { return req_notify_cq(cq_, false); });
    ibv_wc wc[16];
    const int got = call("poll_cq", [&] { return poll_cq(cq_, 16, wc); });
    for (int i = 0; i < got; ++i) report_.completions.fetch_add(wc[i].status == IBV_WC_SUCCESS);
    pollfd readable{channel_, POLLIN, 0};
    uint64_t event;
    if (poll(&readable, 1, 0) == 1 && read(channel_, &event, sizeof event) == sizeof event) cq_event(cq_);
    if (got == 0) sched_yield();
  }

  template <typename Object, typename Destroy>
  void end(const char* name, Object*& object, Destroy&& destroy) {
    if (object == nullptr) return;
    if (call(name, [&] { return destroy(object); }) != 0) report_.left_objects = true;
    object = nullptr;
  }
  void close() {
    uint32_t events, more;
    report_.rc = report_.ud = 0;
    if (listener_ != nullptr) call("destroy_id", [&] { return cm::destroy_id(listener_), 0; });
    answer_calls();
    if (service_ != nullptr) call("release_service", [&] { return cm::release_service(service_), 0; });
    end("destroy_ah", ah_.emulated, [](Ah* ah) { return destroy_ah(ah); });
    for (Qp* qp : {rc_, rc_of_srq_, uc_, ud_})
      end("destroy_qp", qp, [&](Qp* one) { return destroy_qp(one, &events); });
    end("close_qp", xrc_, [&](Qp* qp) { return close_qp(qp, 3, &events); });
    for (Srq* srq : {srq_, xrc_srq_})
      end("destroy_srq", srq, [&](Srq* one) { return destroy_srq(one, &events); });
    end("close_xrcd", xrcd_, [](Xrcd* xrcd) { return close_xrcd(xrcd); });
    end("destroy_cq", cq_, [&](Cq* cq) { return destroy_cq(cq, &events, &more); });
    end("dereg_mr", mr_, [](Mr* mr) { return dereg_mr(mr); });
    end("dealloc_pd", pd_, [](Pd* pd) { return dealloc_pd(pd); });
    if (channel_ >= 0) ::close(channel_);
    if (context_ == nullptr) return;
    const int fd = context_async_fd(context_);
    call("close_context", [&] { return close_context(context_) ? 1 : 0; });
    ::close(fd);
  }

  Shared& shared_;
  Report& report_;
  [[maybe_unused]] const uint32_t me_;
  const GidEntry gid_;
  std::mt19937_64& random_;
  std::vector<uint8_t> memory_;
  Context* context_ = nullptr;
  Pd* pd_ = nullptr;
  Mr* mr_ = nullptr;
  int channel_ = -1;
  Cq* cq_ = nullptr;
  Srq *srq_ = nullptr, *xrc_srq_ = nullptr;
  Xrcd* xrcd_ = nullptr;
  Qp *rc_ = nullptr, *rc_of_srq_ = nullptr, *uc_ = nullptr, *ud_ = nullptr, *xrc_ = nullptr;
  AhOfProgram ah_{};
  cm::Service* service_ = nullptr;
  cm::Id* listener_ = nullptr;
  Arrivals arrivals_;
};

}  // namespace

int work(Shared& shared, uint32_t me, const GidEntry& gid, uint64_t seed) {
  std::mt19937_64 random(seed);
  while (!shared.stop) {
    Session(shared, me, gid, random).run(200);
    // An object that cannot be destroyed holds memory that its owner may not free. That is an error, not
    // harm.
    if (shared.workers[me].left_objects) return 0;
  }
  return 0;
}

}  // namespace verbena::damage
