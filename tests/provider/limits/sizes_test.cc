// SPDX-License-Identifier: BSD-2-Clause
//
// How large one object may be: exactly what ibv_query_device_ex(3) and ibv_query_port(3) claim can be had and
// used, one more is refused (docs/PROFILES.md).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "claims.h"

namespace verbena::test {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kMostConnected = 600;
#else
constexpr int kMostConnected = 1 << 16;
#endif

// ---- work requests and SGEs of a queue pair and of an SRQ ----

struct Capability {
  const char* name;
  uint32_t ibv_qp_cap::*value;
  int ibv_device_attr::*claim;
};
void PrintTo(const Capability& capability, std::ostream* out) { *out << capability.name; }

class Capabilities : public Claims, public testing::WithParamInterface<Capability> {
 protected:
  int make(uint32_t value) {
    ibv_qp_cap cap = {1, 1, 1, 1, 0};
    cap.*GetParam().value = value;
    return keep(qps_, qp(IBV_QPT_RC, cap));
  }
  uint32_t claim() const { return static_cast<uint32_t>(device_.*GetParam().claim); }
};

TEST_P(Capabilities, TheMaximumIsGivenExactly) {
  ASSERT_EQ(make(claim()), 0);
  EXPECT_EQ(given_.*GetParam().value, claim());
}
TEST_P(Capabilities, OneMoreIsRefused) { EXPECT_EQ(make(claim() + 1), EINVAL); }

INSTANTIATE_TEST_SUITE_P(
    Of, Capabilities,
    testing::Values(Capability{"SendWr", &ibv_qp_cap::max_send_wr, &ibv_device_attr::max_qp_wr},
                    Capability{"RecvWr", &ibv_qp_cap::max_recv_wr, &ibv_device_attr::max_qp_wr},
                    Capability{"SendSge", &ibv_qp_cap::max_send_sge, &ibv_device_attr::max_sge},
                    Capability{"RecvSge", &ibv_qp_cap::max_recv_sge, &ibv_device_attr::max_sge}),
    [](const auto& capability) { return std::string(capability.param.name); });

// On devices with SRQs.
class SrqSizes : public Claims, public testing::WithParamInterface<int> {
 protected:
  uint32_t wr() const { return static_cast<uint32_t>(device_.max_srq_wr); }
  uint32_t sge() const { return static_cast<uint32_t>(device_.max_srq_sge); }
};

TEST_P(SrqSizes, TheMaximumIsGivenExactly) {
  ASSERT_EQ(keep(srqs_, srq(wr(), sge())), 0);
  EXPECT_EQ(srq_given_.max_wr, wr());
  EXPECT_EQ(srq_given_.max_sge, sge());
}
TEST_P(SrqSizes, OneRequestMoreIsRefused) { EXPECT_EQ(keep(srqs_, srq(wr() + 1, 1)), EINVAL); }
TEST_P(SrqSizes, OneSgeMoreIsRefused) { EXPECT_EQ(keep(srqs_, srq(1, sge() + 1)), EINVAL); }
TEST_P(SrqSizes, TheLimitMayBeTheMaximum) {
  ASSERT_EQ(keep(srqs_, srq(wr(), 1)), 0);
  ibv_srq_attr attr = {};
  attr.srq_limit = wr();
  EXPECT_EQ(ibv_modify_srq(srqs_[0].get(), &attr, IBV_SRQ_LIMIT), 0);
}
TEST_P(SrqSizes, TheLimitMayNotBeMore) {
  ASSERT_EQ(keep(srqs_, srq(wr(), 1)), 0);
  ibv_srq_attr attr = {};
  attr.srq_limit = wr() + 1;
  EXPECT_EQ(ibv_modify_srq(srqs_[0].get(), &attr, IBV_SRQ_LIMIT), EINVAL);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SrqSizes);
INSTANTIATE_TEST_SUITE_P(Of, SrqSizes,
                         testing::ValuesIn(where([](const Device& d, int) { return d.attr.max_srq != 0; },
                                                 std::vector{1})));

// ---- a queue takes as many requests as it was said to hold ----

// Posts until it is refused; how many were taken. `error`: the refusal.
template <typename Post>
uint32_t posted(Post&& post, int* error) {
  uint32_t taken = 0;
  for (; taken < (1u << 21); ++taken) {
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    if ((*error = post(&wr, &bad)) != 0) break;
  }
  return taken;
}

TEST_P(SrqSizes, AFullQueueRefusesTheNextRequest) {
  ASSERT_EQ(keep(srqs_, srq(wr(), 1)), 0);
  int error = 0;
  EXPECT_EQ(
      posted([&](ibv_recv_wr* wr, ibv_recv_wr** bad) { return ibv_post_srq_recv(srqs_[0].get(), wr, bad); },
             &error),
      wr());
  EXPECT_EQ(error, ENOMEM);
}

class ReceiveQueue : public Claims, public testing::WithParamInterface<ibv_qp_type> {};

TEST_P(ReceiveQueue, AFullQueueRefusesTheNextRequest) {
  const auto most = static_cast<uint32_t>(device_.max_qp_wr);
  ASSERT_EQ(keep(qps_, qp(GetParam(), {1, most, 1, 1, 0})), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const int last = GetParam() == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(ibv_modify_qp(qps_[0].get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
  int error = 0;
  EXPECT_EQ(posted([&](ibv_recv_wr* wr, ibv_recv_wr** bad) { return ibv_post_recv(qps_[0].get(), wr, bad); },
                   &error),
            most);
  EXPECT_EQ(error, ENOMEM);
}

INSTANTIATE_TEST_SUITE_P(
    Of, ReceiveQueue, testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD), [](const auto& type) {
      return std::string(type.param == IBV_QPT_RC ? "Rc" : type.param == IBV_QPT_UC ? "Uc" : "Ud");
    });

// ---- completion queues and memory ----

TEST_F(Claims, CompletionQueueEntries) {
  ASSERT_EQ(keep(cqs_, cq(device_.max_cqe)), 0) << strerror(errno);
  EXPECT_EQ(cqs_[0]->cqe, device_.max_cqe);
}
TEST_F(Claims, OneCompletionQueueEntryMoreIsRefused) {
  EXPECT_EQ(keep(cqs_, cq(device_.max_cqe + 1)), EINVAL);
}
TEST_F(Claims, ResizingTakesTheMaximum) {
  EXPECT_EQ(ibv_resize_cq(cq_.get(), device_.max_cqe), 0);
  EXPECT_EQ(cq_->cqe, device_.max_cqe);
}
TEST_F(Claims, ResizingTakesNotOneMore) { EXPECT_EQ(ibv_resize_cq(cq_.get(), device_.max_cqe + 1), EINVAL); }

// Where the largest region is not too large to make.
class RegionSize : public Claims, public testing::WithParamInterface<int> {};
bool region_can_be_made(const Device& device, int) { return device.attr.max_mr_size <= uint64_t{1} << 31; }
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RegionSize);
INSTANTIATE_TEST_SUITE_P(Of, RegionSize, testing::ValuesIn(where(region_can_be_made, std::vector{1})));

TEST_P(RegionSize, IsTakenExactly) {
  const size_t size = device_.max_mr_size + 1;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(keep(mrs_, ibv_reg_mr(pd_.get(), memory, size - 1, 0)), 0);
  EXPECT_EQ(keep(mrs_, ibv_reg_mr(pd_.get(), memory, size, 0)), EINVAL);
  mrs_.clear();
  munmap(memory, size);
}

// ---- a connection ----

class ConnectionSizes : public Claims {
 protected:
  void SetUp() override {
    Claims::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_EQ(keep(qps_, qp(IBV_QPT_RC, {4, 4, 1, 1, 0})), 0);
  }
  // The QP is its own peer.
  int to_rtr(int responder_resources, ibv_mtu mtu) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    EXPECT_EQ(
        ibv_modify_qp(it(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = mtu;
    attr.dest_qp_num = it()->qp_num;
    attr.max_dest_rd_atomic = static_cast<uint8_t>(responder_resources);
    attr.ah_attr = address();
    return ibv_modify_qp(it(), &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  int to_rts(int outstanding) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.max_rd_atomic = static_cast<uint8_t>(outstanding);
    return ibv_modify_qp(it(), &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
  }
  ibv_qp* it() const { return qps_[0].get(); }
};

TEST_F(ConnectionSizes, AsResponder) { EXPECT_EQ(to_rtr(device_.max_qp_rd_atom, IBV_MTU_256), 0); }
TEST_F(ConnectionSizes, AsResponderNotOneMore) {
  EXPECT_EQ(to_rtr(device_.max_qp_rd_atom + 1, IBV_MTU_256), EINVAL);
}
TEST_F(ConnectionSizes, AsInitiator) {
  ASSERT_EQ(to_rtr(1, IBV_MTU_256), 0);
  EXPECT_EQ(to_rts(device_.max_qp_init_rd_atom), 0);
}
TEST_F(ConnectionSizes, AsInitiatorNotOneMore) {
  ASSERT_EQ(to_rtr(1, IBV_MTU_256), 0);
  EXPECT_EQ(to_rts(device_.max_qp_init_rd_atom + 1), EINVAL);
}
// As many as the device claims, each connected, and each carries a message. An earlier one does so again at
// the end.
TEST_F(ConnectionSizes, EveryQueuePairAtOnce) {
  const size_t all = static_cast<size_t>(std::min(device_.max_qp, kMostConnected));
  mrs_.emplace_back(ibv_reg_mr(pd_.get(), bytes_, sizeof bytes_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  ASSERT_NE(mrs_[0], nullptr);
  const auto carries = [&](ibv_qp* qp, uint8_t number) {
    bytes_[0] = number;
    bytes_[32] = 0;
    ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(bytes_), .length = 1, .lkey = mrs_[0]->lkey};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<uintptr_t>(bytes_) + 32, mrs_[0]->rkey};
    if (ibv_post_send(qp, &wr, &bad) != 0) return false;
    ibv_wc wc = {};
    int polled = 0;
    for (int tries = 0; polled == 0 && tries < 100'000'000; ++tries) polled = ibv_poll_cq(cq_.get(), 1, &wc);
    return polled == 1 && wc.status == IBV_WC_SUCCESS && wc.qp_num == qp->qp_num && bytes_[32] == number;
  };
  while (qps_.size() < all) ASSERT_EQ(keep(qps_, qp(IBV_QPT_RC)), 0) << qps_.size() << " of " << all;
  for (size_t i = 0; i < all; ++i) {
    std::swap(qps_[0], qps_[i]);  // it()
    ASSERT_EQ(to_rtr(0, IBV_MTU_256), 0) << i;
    ASSERT_EQ(to_rts(0), 0) << i;
    ASSERT_TRUE(carries(it(), static_cast<uint8_t>(i % 255 + 1))) << i;
  }
  ASSERT_TRUE(carries(qps_[all / 2].get(), 7));
}
TEST_F(ConnectionSizes, PathMtu) { EXPECT_EQ(to_rtr(1, port_.active_mtu), 0); }
TEST_F(ConnectionSizes, PathMtuNotOneMore) {
  EXPECT_EQ(to_rtr(1, static_cast<ibv_mtu>(port_.active_mtu + 1)), EINVAL);
}

// A message over the limit is told by its completion (InfiniBand 1.5, 11.6.2, "local length error").
// Memory of any length out of two megabytes, which it repeats: a message of 1 GiB needs none of that size.
class Repeated {
 public:
  explicit Repeated(size_t size) : size_((size + kPiece - 1) / kPiece * kPiece) {
    const int fd = memfd_create("repeated", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPiece), 0);
    void* reserved = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(reserved, MAP_FAILED);
    data_ = static_cast<uint8_t*>(reserved);
    for (size_t at = 0; at < size_; at += kPiece)
      EXPECT_NE(mmap(data_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), MAP_FAILED);
    close(fd);
  }
  ~Repeated() { munmap(data_, size_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  uint8_t* data() const { return data_; }

 private:
  static constexpr size_t kPiece = 2 << 20;
  size_t size_;
  uint8_t* data_ = nullptr;
};

struct MessageLength {
  const char* name;
  uint32_t more;
  ibv_wc_status status;
};
void PrintTo(const MessageLength& length, std::ostream* out) { *out << length.name; }
class MessageLengths : public ConnectionSizes, public testing::WithParamInterface<MessageLength> {};

TEST_P(MessageLengths, EndAsTheyMust) {
  ASSERT_EQ(to_rtr(1, port_.active_mtu), 0);
  ASSERT_EQ(to_rts(1), 0);
  const size_t size = size_t{port_.max_msg_sz} + 1;
  const Repeated memory(size), target(size);
  ASSERT_EQ(keep(mrs_, ibv_reg_mr(pd_.get(), memory.data(), size, 0)), 0) << strerror(errno);
  ASSERT_EQ(keep(mrs_, ibv_reg_mr(pd_.get(), target.data(), size,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
            0);
  const size_t last = port_.max_msg_sz - 1;
  memory.data()[last] = 0x5a;
  ibv_sge sge = {reinterpret_cast<uintptr_t>(memory.data()), port_.max_msg_sz + GetParam().more,
                 mrs_[0]->lkey};
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(target.data());
  wr.wr.rdma.rkey = mrs_[1]->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(it(), &wr, &bad), 0);
  ibv_wc wc = {};
  for (int looks = 0; looks < 10'000'000 && ibv_poll_cq(cq_.get(), 1, &wc) == 0; ++looks) {
  }
  EXPECT_EQ(wc.status, GetParam().status);
  EXPECT_EQ(target.data()[last], wc.status == IBV_WC_SUCCESS ? 0x5a : 0);
  mrs_.clear();
}

// Where a region may be longer than a message.
bool message_can_be_made(const Device& device, const MessageLength&) {
  return device.port.max_msg_sz < device.attr.max_mr_size;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MessageLengths);
INSTANTIATE_TEST_SUITE_P(Of, MessageLengths,
                         testing::ValuesIn(where(message_can_be_made,
                                                 std::vector<MessageLength>{
                                                     {"TheMaximum", 0, IBV_WC_SUCCESS},
                                                     {"OneMore", 1, IBV_WC_LOC_LEN_ERR}})),
                         [](const auto& length) { return std::string(length.param.name); });

}  // namespace
}  // namespace verbena::test
