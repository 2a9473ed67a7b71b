// SPDX-License-Identifier: BSD-2-Clause
//
// Extended reliable connections: domains, shared receive queues, QPs. The test owns the receiving half; the
// sender is at the far end.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <optional>

#include "support/pair.h"

namespace conformance::xrc_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  ~Fixture() override {
    if (file_ >= 0) close(file_);
  }
  Xrcd open(int fd, int flags) {
    ibv_xrcd_init_attr attr = {};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = flags;
    return Xrcd(CALL(ibv_open_xrcd(context(), &attr)));
  }
  Xrcd domain() {
    if ((device().attributes().device_cap_flags & IBV_DEVICE_XRC) == 0)
      throw NotClaimed{"IBV_DEVICE_XRC is not set"};
    Xrcd xrcd = open(-1, O_CREAT);
    if (!xrcd) throw Deviation{"IBV_DEVICE_XRC is set; errno " + errno_text(errno), Where::current()};
    return xrcd;
  }
  int file() {
    if (file_ < 0) {
      char name[] = "/tmp/verbs-conformance-XXXXXX";
      file_ = mkostemp(name, O_CLOEXEC);
      unlink(name);
    }
    return file_;
  }

  // A receiving QP of a domain with an SRQ, and the far sender that is connected to it.
  void connect() {
    prepare();
    wire::MakeEnd sender;
    sender.type = IBV_QPT_XRC_SEND;
    sender_.emplace(topology().far(), sender);
    conformance::connect(device(), receiver_, *sender_);
  }
  void prepare() {
    xrcd_ = domain();
    pd_ = make_pd(device());
    mr_ = make_mr(pd_, buffer_,
                  device().attributes().atomic_cap == IBV_ATOMIC_NONE
                      ? all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC
                      : all_remote_access);
    make_srq(srq_, receive_cq_);
    ibv_qp_init_attr_ex receiver = {};
    receiver.qp_type = IBV_QPT_XRC_RECV;
    receiver.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    receiver.xrcd = xrcd_;
    receiver_ = Qp(CALL(ibv_create_qp_ex(context(), &receiver)));
    if (!receiver_) throw Deviation{"XRC QPs are claimed; errno " + errno_text(errno), Where::current()};
  }
  void make_srq(Srq& srq, Cq& cq) {
    cq = make_cq(device(), 64);
    ibv_srq_init_attr_ex attr = {};
    attr.attr = {16, 1, 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd_;
    attr.xrcd = xrcd_;
    attr.cq = cq;
    srq = Srq(CALL(ibv_create_srq_ex(context(), &attr)));
    if (!srq) throw Deviation{"an XRC SRQ is needed; errno " + errno_text(errno), Where::current()};
  }
  // A sending QP of the test's own. `operations`: IBV_QP_EX_WITH_*, of an extended one.
  Qp make_sender(ibv_cq* cq, uint64_t operations = 0) {
    ibv_qp_init_attr_ex sender = {};
    sender.qp_type = IBV_QPT_XRC_SEND;
    sender.send_cq = cq;
    sender.cap = {16, 0, 1, 0, 0};
    sender.comp_mask = IBV_QP_INIT_ATTR_PD;
    sender.pd = pd_;
    if (operations != 0) sender.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    sender.send_ops_flags = operations;
    Qp qp(CALL(ibv_create_qp_ex(context(), &sender)));
    if (!qp && operations != 0 && is_refusal_of_qp(errno))
      throw NotClaimed{"an extended sender is refused with " + errno_text(errno)};
    if (!qp) throw Deviation{"XRC QPs are claimed; errno " + errno_text(errno), Where::current()};
    return qp;
  }
  uint32_t number_of(ibv_srq* srq) {
    uint32_t number = 0;
    EXPECT_SUCCEEDS(ibv_get_srq_num(srq, &number));
    return number;
  }
  void receive(ibv_srq* srq, uint64_t id = 5) {
    ibv_sge element{buffer_.address(2048), 64, mr_->lkey};
    ibv_recv_wr wr = {id, nullptr, &element, 1};
    ibv_recv_wr* bad;
    ASSERT_EQ(CALL(ibv_post_srq_recv(srq, &wr, &bad)), 0);
  }
  // The far sender's request to buffer_, with eight bytes from the beginning of its own buffer.
  ibv_wc_status post(ibv_wr_opcode opcode, ibv_srq* to, size_t offset = 1024) {
    SendRequest request = send_request({{0, 8}}, 1, opcode);
    request.imm = 0x01020304;
    request.remote = buffer_.address(offset);
    request.rkey = mr_->rkey;
    request.compare_add = 1, request.swap = 2;
    request.srqn = number_of(to);
    EXPECT_EQ(sender_->post(request), 0);
    return sender_->completion().status;
  }

  const Buffer buffer_{4096};
  int file_ = -1;
  Xrcd xrcd_;
  Pd pd_;
  Cq receive_cq_, other_cq_;
  Mr mr_;
  Srq srq_, other_;
  Qp receiver_;
  std::optional<Endpoint> sender_;
};

CONFORMANCE_TEST(xrc, DomainComesAndGoes, "ibv_open_xrcd.anonymous", "ibv_open_xrcd.as-claimed",
                 "ibv_close_xrcd.zero") {
  Xrcd xrcd = domain();  // claimed and null: a deviation from each of them
  ABOUT("ibv_close_xrcd.zero") EXPECT_SUCCEEDS(xrcd.destroy());
}

CONFORMANCE_TEST(xrc, DomainOfAFile, "ibv_open_xrcd.file", "ibv_open_xrcd.no-create", "ibv_open_xrcd.null",
                 "ibv_open_xrcd.exclusive", "ibv_close_xrcd.last") {
  domain();
  {
    const About about("ibv_open_xrcd.no-create");
    ASSERT_EQ(open(file(), 0), nullptr);  // the page promises no errno
  }
  Xrcd first = open(file(), O_CREAT);
  ASSERT_NE(first, nullptr) << "errno " << errno_text(errno);
  Xrcd again = open(file(), 0);
  EXPECT_NE(again, nullptr) << "errno " << errno_text(errno);
  {
    const About about("ibv_open_xrcd.exclusive");
    EXPECT_EQ(open(file(), O_CREAT | O_EXCL), nullptr);
  }
  const About about("ibv_close_xrcd.last");
  EXPECT_SUCCEEDS(first.destroy());
  EXPECT_NE(open(file(), 0), nullptr) << "a reference is left";
  if (again) {
    EXPECT_SUCCEEDS(again.destroy());
  }
  EXPECT_EQ(open(file(), 0), nullptr) << "after the last reference";
}

CONFORMANCE_TEST(xrc, DomainIsBusy, "ibv_close_xrcd.busy", "ibv_create_srq_ex.xrc",
                 "ibv_create_qp_ex.xrc-recv", "ibv_create_qp_ex.xrc-send") {
  prepare();
  const Cq cq = make_cq(device());
  Qp sender = make_sender(cq);
  ABOUT("ibv_close_xrcd.busy") ASSERT_TRUE(refused(CALL(xrcd_.destroy())));
  EXPECT_SUCCEEDS(sender.destroy());
  EXPECT_SUCCEEDS(receiver_.destroy());
  ABOUT("ibv_close_xrcd.busy") ASSERT_TRUE(refused(CALL(xrcd_.destroy())));
  EXPECT_SUCCEEDS(srq_.destroy());
  EXPECT_SUCCEEDS(xrcd_.destroy());
}

CONFORMANCE_TEST(xrc, SendsReachTheNamedQueue, "ibv_post_send.xrc.send", "ibv_post_send.xrc.send-imm",
                 "ibv_post_send.xrc.two-srqs", "ibv_get_srq_num.zero") {
  connect();
  make_srq(other_, other_cq_);
  receive(srq_, 5);
  receive(other_, 6);
  sender_->fill(0, 8, 0x77);
  EXPECT_EQ(post(IBV_WR_SEND, other_), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(other_cq_).wr_id, 6u);
  EXPECT_EQ(buffer_[2048], 0x77);
  const About about("ibv_post_send.xrc.send-imm");
  EXPECT_EQ(post(IBV_WR_SEND_WITH_IMM, srq_), IBV_WC_SUCCESS);
  const ibv_wc wc = completion(receive_cq_);
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.imm_data, htonl(0x01020304));
  EXPECT_SUCCEEDS(receiver_.destroy());
  EXPECT_SUCCEEDS(other_.destroy());
}

CONFORMANCE_TEST(xrc, RdmaOverXrc, "ibv_post_send.xrc.write", "ibv_post_send.xrc.write-imm",
                 "ibv_post_send.xrc.read") {
  connect();
  sender_->fill(0, 8, 0x77);
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE, srq_), IBV_WC_SUCCESS);
  EXPECT_EQ(buffer_[1024], 0x77);
  {
    const About about("ibv_post_send.xrc.write-imm");
    receive(srq_);
    EXPECT_EQ(post(IBV_WR_RDMA_WRITE_WITH_IMM, srq_, 1100), IBV_WC_SUCCESS);
    EXPECT_EQ(completion(receive_cq_).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(buffer_[1100], 0x77);
  }
  const About about("ibv_post_send.xrc.read");
  buffer_[1200] = 0x11;
  EXPECT_EQ(post(IBV_WR_RDMA_READ, srq_, 1200), IBV_WC_SUCCESS);
  EXPECT_TRUE(sender_->has(0, 1, 0x11));
}

CONFORMANCE_TEST(xrc, AtomicsOverXrc, "ibv_post_send.xrc.atomics") {
  if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
  connect();
  if (sender_->facts().atomics == IBV_ATOMIC_NONE) throw NotTested{"the far end has no atomics"};
  uint64_t& remote = *reinterpret_cast<uint64_t*>(buffer_.data() + 1024);
  remote = 0;
  EXPECT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, srq_), IBV_WC_SUCCESS);
  EXPECT_EQ(remote, 1u);
  EXPECT_EQ(post(IBV_WR_ATOMIC_CMP_AND_SWP, srq_), IBV_WC_SUCCESS);
  EXPECT_EQ(remote, 2u);
}

CONFORMANCE_TEST(xrc, QpIsOpenedByItsNumber, "ibv_open_qp.pointer", "ibv_open_qp.absent",
                 "ibv_open_qp.destroy") {
  connect();
  ibv_qp_open_attr attr = {};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = receiver_->qp_num;
  attr.xrcd = xrcd_;
  attr.qp_type = IBV_QPT_XRC_RECV;
  Qp opened(CALL(ibv_open_qp(context(), &attr)));
  // No page says that a device with XRC lets processes share a receiver by its number.
  if (!opened && (errno == EOPNOTSUPP || errno == ENOSYS))
    throw NotClaimed{"ibv_open_qp refused with " + errno_text(errno)};
  ASSERT_NE(opened, nullptr) << "errno " << errno_text(errno);
  EXPECT_EQ(opened->qp_num, receiver_->qp_num);
  {
    const About about("ibv_open_qp.absent");
    attr.qp_num = receiver_->qp_num ^ 0x00800000;
    const Qp absent(CALL(ibv_open_qp(context(), &attr)));
    EXPECT_EQ(absent, nullptr);
  }
  const About about("ibv_open_qp.destroy");
  EXPECT_SUCCEEDS(receiver_.destroy());
  receive(srq_);
  EXPECT_EQ(post(IBV_WR_SEND, srq_), IBV_WC_SUCCESS) << "the underlying QP has a reference left";
  EXPECT_SUCCEEDS(opened.destroy());
}

// Two SRQs at the far end, and the sender here.
CONFORMANCE_TEST(xrc, ExtendedSenderNamesTheSrq, "ibv_wr_post.xrc-srqn") {
  domain();
  pd_ = make_pd(device());
  mr_ = make_mr(pd_, buffer_);
  const Cq cq = make_cq(device());
  const Qp qp = make_sender(cq, IBV_QP_EX_WITH_SEND);
  wire::MakeEnd spec;
  spec.type = IBV_QPT_XRC_SEND;
  Endpoint receiver(topology().far(), spec);
  spec.shares = receiver.facts().end;
  Endpoint other(topology().far(), spec);
  conformance::connect(device(), qp, receiver);
  ASSERT_EQ(receiver.receive(0, 64, 5), 0);
  ASSERT_EQ(other.receive(64, 64, 6), 0);
  ibv_qp_ex* sender = CALL(ibv_qp_to_qp_ex(qp));
  ASSERT_NE(sender, nullptr);
  sender->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_start(sender);
  CALL(ibv_wr_send(sender));
  CALL(ibv_wr_set_xrc_srqn(sender, other.facts().srqn));
  ibv_wr_set_sge(sender, mr_->lkey, buffer_.address(), 8);
  ASSERT_EQ(CALL(ibv_wr_complete(sender)), 0);
  EXPECT_EQ(completion(cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(other.received().id, 6u);
  EXPECT_TRUE(receiver.stays_empty(true));
}

}  // namespace
}  // namespace conformance::xrc_chapter
