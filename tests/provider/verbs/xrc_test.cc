// SPDX-License-Identifier: BSD-2-Clause
//
// XRC (ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)): domains, and requests that name their SRQ.
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "srq_fixture.h"

namespace verbena::test {
namespace {

class TemporaryFile {
 public:
  TemporaryFile() { fd_ = mkstemp(name_.data()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    close(fd_);
    unlink(name_.data());
  }
  int fd() const { return fd_; }
  const char* name() const { return name_.data(); }

 private:
  std::array<char, 32> name_{"/tmp/verbena-xrc-XXXXXX"};
  int fd_ = -1;
};

class XrcTest : public SrqTest {
 protected:
  void SetUp() override {
    SrqTest::SetUp();
    if (HasFatalFailure()) return;
    xrcd_ = open_domain(-1, O_CREAT);
    ASSERT_NE(xrcd_, nullptr);
    srq_ = make_xrc_srq();
    ASSERT_NE(srq_, nullptr);
    receiver_ = make_receiver();
    ASSERT_NE(receiver_, nullptr);
    sender_ = make_sender();
    ASSERT_NE(sender_, nullptr);
    connect(receiver_.get(), sender_->qp_num);
    connect(sender_.get(), receiver_->qp_num);
  }

  Xrcd open_domain(int fd, int flags) {
    ibv_xrcd_init_attr attr = {};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = flags;
    return Xrcd(ibv_open_xrcd(context_.get(), &attr));
  }
  Srq make_xrc_srq(ibv_xrcd* xrcd = nullptr) {
    ibv_srq_init_attr_ex attr = {};
    attr.attr = {.max_wr = 16, .max_sge = 2, .srq_limit = 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd_.get();
    attr.xrcd = xrcd != nullptr ? xrcd : xrcd_.get();
    attr.cq = receive_cq_.get();
    return Srq(ibv_create_srq_ex(context_.get(), &attr));
  }
  Qp make_receiver() {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd_.get();
    return Qp(ibv_create_qp_ex(context_.get(), &attr));
  }
  Qp make_sender() {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_XRC_SEND;
    attr.send_cq = cq_.get();
    attr.cap = {
        .max_send_wr = 16, .max_recv_wr = 0, .max_send_sge = 2, .max_recv_sge = 0, .max_inline_data = 0};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_.get();
    return Qp(ibv_create_qp_ex(context_.get(), &attr));
  }
  static uint32_t number_of(const Srq& srq) {
    uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq.get(), &number), 0);
    return number;
  }
  ibv_wc_status request(ibv_wr_opcode opcode, ibv_sge sge, uint32_t srqn) {
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic = {.remote_addr = remote_.address(), .compare_add = 5, .swap = 0, .rkey = remote_.rkey()};
    } else {
      wr.wr.rdma = {.remote_addr = remote_.address(), .rkey = remote_.rkey()};
    }
    wr.qp_type.xrc.remote_srqn = srqn;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(sender_.get(), &wr, &bad), 0);
    return next_completion(cq_.get()).status;
  }
  ibv_qp* open(uint32_t number, ibv_xrcd* xrcd) {
    ibv_qp_open_attr attr = {};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    return ibv_open_qp(context_.get(), &attr);
  }

  // The domain cannot be closed before what is in it.
  void TearDown() override {
    receiver_.reset();
    srq_.reset();
    SrqTest::TearDown();
  }

  Xrcd xrcd_;
  Qp receiver_, sender_;
};

class XrcMessageTest : public XrcTest, public testing::WithParamInterface<uint32_t> {};

TEST_P(XrcMessageTest, Arrives) {
  local_.fill(9);
  ASSERT_EQ(post(31, 512, GetParam()), 0);
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, GetParam()), number_of(srq_)), IBV_WC_SUCCESS);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 31u);
  EXPECT_EQ(wc.byte_len, GetParam());
  EXPECT_EQ(wc.qp_num, receiver_->qp_num);
  EXPECT_EQ(memcmp(local_.data(), remote_.data() + 512, GetParam()), 0);
}

INSTANTIATE_TEST_SUITE_P(Length, XrcMessageTest,
                         testing::Values(0u, 1u, 88u, 89u, 96u, 97u, 256u, 257u, 262145u, 900000u));

TEST_F(XrcTest, EachRequestChoosesItsSrq) {
  const Srq other = make_xrc_srq();
  ASSERT_EQ(post(1, 0, 64), 0);
  ibv_sge sge = remote_.sge(64, 64);
  ibv_recv_wr wr = {.wr_id = 2, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(other.get(), &wr, &bad), 0);
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(other)), IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(receive_cq_.get()).wr_id, 2u);
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(srq_)), IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(receive_cq_.get()).wr_id, 1u);
}

TEST_F(XrcTest, WritesIntoTheDomainOfTheSrq) {
  local_.fill(4);
  ASSERT_EQ(request(IBV_WR_RDMA_WRITE, local_.sge(0, 5000), number_of(srq_)), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(local_.data(), remote_.data(), 5000), 0);
}

TEST_F(XrcTest, ReadsFromTheDomainOfTheSrq) {
  remote_.fill(4);
  ASSERT_EQ(request(IBV_WR_RDMA_READ, local_.sge(0, 5000), number_of(srq_)), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(local_.data(), remote_.data(), 5000), 0);
}

TEST_F(XrcTest, AddsInTheDomainOfTheSrq) {
  ASSERT_EQ(request(IBV_WR_ATOMIC_FETCH_AND_ADD, local_.sge(0, 8), number_of(srq_)), IBV_WC_SUCCESS);
  EXPECT_EQ(remote_.data()[0], 5);
}

TEST_F(XrcTest, AWriteWithImmediateTakesARequest) {
  ASSERT_EQ(post(8, 512, 64), 0);
  ASSERT_EQ(request(IBV_WR_RDMA_WRITE_WITH_IMM, local_.sge(0, 8), number_of(srq_)), IBV_WC_SUCCESS);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.wr_id, 8u);
}

TEST_F(XrcTest, ANumberThatNoSrqHasIsAnInvalidRequest) {
  EXPECT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), sender_->qp_num), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(next_event(), IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(state_of(receiver_.get()), IBV_QPS_ERR);
}

TEST_F(XrcTest, AnSrqThatIsGoneIsAnInvalidRequest) {
  ASSERT_EQ(post(1, 0, 64), 0);
  const uint32_t number = number_of(srq_);
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number), IBV_WC_SUCCESS);
  srq_.reset();
  EXPECT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(XrcTest, AnSrqOfAnotherDomainIsAnInvalidRequest) {
  const Xrcd other = open_domain(-1, O_CREAT);
  const Srq srq = make_xrc_srq(other.get());
  EXPECT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(srq)), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(XrcTest, ABasicSrqIsAnInvalidRequest) {
  const Srq basic = make_srq(4);
  EXPECT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(basic)), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(XrcTest, CompletionsLeaveWithTheirSrq) {
  ASSERT_EQ(post(1, 0, 64), 0);
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(srq_)), IBV_WC_SUCCESS);
  srq_.reset();
  EXPECT_TRUE(is_empty(receive_cq_.get()));
}

// Completions of the SRQ's requests stay to be polled.
TEST_F(XrcTest, CompletionsStayWhenTheReceiverGoes) {
  ASSERT_EQ(post(1, 0, 64), 0);
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(srq_)), IBV_WC_SUCCESS);
  receiver_.reset();
  EXPECT_EQ(next_completion(receive_cq_.get()).wr_id, 1u);
}

// The first chunk has taken a request when the requester is put into ERR.
TEST_F(XrcTest, ARequestInTheMiddleOfAMessageIsFlushed) {
  ASSERT_EQ(post(42, 0, kBufferSize), 0);
  ibv_sge sge = local_.sge(0, kBufferSize);
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.qp_type.xrc.remote_srqn = number_of(srq_);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(sender_.get(), &wr, &bad), 0);
  ASSERT_EQ(to_state(sender_.get(), IBV_QPS_ERR), 0);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.wr_id, 42u);
  // The service thread may have completed it before.
  EXPECT_TRUE(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_SUCCESS) << wc.status;
}

// ---- references between objects ----

TEST_F(XrcTest, ADomainStaysWhileAnSrqIsInIt) {
  receiver_.reset();
  EXPECT_EQ(ibv_close_xrcd(xrcd_.get()), EBUSY);
}

TEST_F(XrcTest, ADomainStaysWhileAQueuePairIsInIt) {
  srq_.reset();
  EXPECT_EQ(ibv_close_xrcd(xrcd_.get()), EBUSY);
}

TEST_F(XrcTest, ACqStaysWhileAnSrqCompletesThere) { EXPECT_EQ(ibv_destroy_cq(receive_cq_.get()), EBUSY); }

// ---- domains (kernel, uverbs_cmd.c, ib_uverbs_open_xrcd) ----

TEST_F(XrcTest, AFileWithoutADomainWantsToBeAskedToMakeOne) {
  const TemporaryFile file;
  EXPECT_EQ(open_domain(file.fd(), 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(XrcTest, AFileWithADomainRefusesToMakeItAlone) {
  const TemporaryFile file;
  const Xrcd first = open_domain(file.fd(), O_CREAT);
  EXPECT_EQ(open_domain(file.fd(), O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, ADomainIsOpenedThroughAnyDescriptorOfItsFile) {
  const TemporaryFile file;
  const Xrcd first = open_domain(file.fd(), O_CREAT);
  const int other = ::open(file.name(), O_RDONLY | O_CLOEXEC);
  EXPECT_NE(open_domain(other, 0), nullptr);
  close(other);
}

TEST_F(XrcTest, ADomainEndsWithItsLastHandle) {
  const TemporaryFile file;
  open_domain(file.fd(), O_CREAT).reset();
  EXPECT_EQ(open_domain(file.fd(), 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(XrcTest, ADescriptorThatIsNotOpenIsBad) {
  EXPECT_EQ(open_domain(4711, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(XrcTest, TwoHandlesOfAFileAreOneDomain) {
  const TemporaryFile file;
  const Xrcd first = open_domain(file.fd(), O_CREAT), second = open_domain(file.fd(), 0);
  const Qp qp = [&] {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = first.get();
    return Qp(ibv_create_qp_ex(context_.get(), &attr));
  }();
  EXPECT_NE(Qp(open(qp->qp_num, second.get())), nullptr);
}

// ---- queue pairs ----

TEST_F(XrcTest, AnOpenedQueuePairHasTheNumber) {
  const Qp opened(open(receiver_->qp_num, xrcd_.get()));
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->qp_num, receiver_->qp_num);
}

TEST_F(XrcTest, AQueuePairLivesAsLongAsItIsOpen) {
  const Qp opened(open(receiver_->qp_num, xrcd_.get()));
  receiver_.reset();
  ASSERT_EQ(post(1, 0, 64), 0);
  EXPECT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), number_of(srq_)), IBV_WC_SUCCESS);
}

TEST_F(XrcTest, EachHandleGetsTheEvents) {
  const Qp opened(open(receiver_->qp_num, xrcd_.get()));
  ASSERT_EQ(request(IBV_WR_SEND, local_.sge(0, 8), 1), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(next_event(), IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(next_event(), IBV_EVENT_QP_REQ_ERR);
}

TEST_F(XrcTest, AQueuePairOfAnotherDomainIsNotOpened) {
  const Xrcd other = open_domain(-1, O_CREAT);
  EXPECT_EQ(open(receiver_->qp_num, other.get()), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, ASenderIsNotOpened) {
  EXPECT_EQ(open(sender_->qp_num, xrcd_.get()), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, ReceiversSendNothing) {
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(receiver_.get(), &wr, &bad), EINVAL);
}

}  // namespace
}  // namespace verbena::test
