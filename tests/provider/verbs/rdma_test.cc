// SPDX-License-Identifier: BSD-2-Clause
//
// RDMA WRITE, WRITE_WITH_IMM and READ: ibv_post_send(3), InfiniBand 9.4.3 and 9.4.4.
#include <arpa/inet.h>
#include <time.h>

#include <algorithm>

#include "pair.h"

namespace verbena::test {
namespace {

class RdmaTest : public PairTest {
 protected:
  ibv_wc carry_out_at(ibv_wr_opcode opcode, ibv_sge sge, uint64_t address, uint32_t rkey) {
    ibv_send_wr wr = request(opcode, &sge);
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    return carry_out(wr);
  }
};

TEST_F(RdmaTest, WritePlacesTheBytesAndTellsNobody) {
  local_.fill(1);
  const ibv_wc wc = carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 300));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(same_bytes(300));
  EXPECT_EQ(remote_.data()[300], 0);
  EXPECT_TRUE(is_empty(responder_cq_.get()));
}

TEST_F(RdmaTest, WriteLeavesAPostedReceive) {
  ASSERT_EQ(receive(remote_.sge(4096, 64)), 0);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).opcode, IBV_WC_RECV);
}

TEST_F(RdmaTest, WriteWithImmediateUsesAReceive) {
  local_.fill(1);
  ASSERT_EQ(receive(nullptr, 0), 0);
  ibv_sge sge = local_.sge(0, 100);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
  wr.imm_data = htonl(42);
  EXPECT_EQ(carry_out(wr).opcode, IBV_WC_RDMA_WRITE);
  const ibv_wc received = next_completion(responder_cq_.get());
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.byte_len, 100u);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(ntohl(received.imm_data), 42u);
  EXPECT_TRUE(same_bytes(100));
}

TEST_F(RdmaTest, ReadFetchesTheBytes) {
  remote_.fill(1);
  const ibv_wc wc = carry_out(IBV_WR_RDMA_READ, local_.sge(0, 300));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 300u);
  EXPECT_TRUE(same_bytes(300));
  EXPECT_EQ(local_.data()[300], 0);
}

class RdmaSizeTest : public RdmaTest, public testing::WithParamInterface<size_t> {};

TEST_P(RdmaSizeTest, Writes) {
  local_.fill(1);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, GetParam())).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(GetParam()));
}
TEST_P(RdmaSizeTest, Reads) {
  remote_.fill(1);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_READ, local_.sge(0, GetParam())).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Sizes, RdmaSizeTest, testing::Values(1, 3, 8, 9, 1024, 4095, 4097, 8192, 65536));

TEST_F(RdmaTest, AMebibyteGoesBothWays) {
  constexpr size_t kMebibyte = 1 << 20;
  Buffer here(pd_.get(), kMebibyte);
  Buffer there(pd_.get(), kMebibyte);
  here.fill(1);
  ASSERT_EQ(carry_out_at(IBV_WR_RDMA_WRITE, here.sge(0, kMebibyte), there.address(), there.rkey()).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(here.data(), there.data(), kMebibyte), 0);
  there.fill(2);
  ASSERT_EQ(carry_out_at(IBV_WR_RDMA_READ, here.sge(0, kMebibyte), there.address(), there.rkey()).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(here.data(), there.data(), kMebibyte), 0);
}

TEST_F(RdmaTest, WriteGathers) {
  local_.fill(1);
  ibv_sge from[] = {local_.sge(0, 1), local_.sge(1, 4999), local_.sge(5000, 24)};
  ASSERT_EQ(carry_out(request(IBV_WR_RDMA_WRITE, from, 3)).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(5024));
}

TEST_F(RdmaTest, ReadScatters) {
  remote_.fill(1);
  ibv_sge to[] = {local_.sge(0, 1), local_.sge(1, 4999), local_.sge(5000, 24)};
  ASSERT_EQ(carry_out(request(IBV_WR_RDMA_READ, to, 3)).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(5024));
}

TEST_F(RdmaTest, WriteInline) {
  const char text[] = "inline";
  ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(text), .length = sizeof(text), .lkey = 0};
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(remote_.data()), "inline");
}

// InfiniBand 9.4.3: a request of length 0 does not have its address and key checked.
TEST_F(RdmaTest, NothingIsWrittenNowhere) {
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, nullptr, 0);
  wr.wr.rdma.remote_addr = 0;
  wr.wr.rdma.rkey = 0;
  EXPECT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaTest, AFencedSendSeesWhatTheReadBefore) {
  remote_.fill(1);
  ASSERT_EQ(receive(remote_.sge(8192, 64)), 0);
  ibv_sge sge = local_.sge(0, 64);
  ibv_send_wr list[2] = {request(IBV_WR_RDMA_READ, &sge, 1, 1), request(IBV_WR_SEND, &sge, 1, 2)};
  list[0].next = &list[1];
  list[1].send_flags |= IBV_SEND_FENCE;
  ASSERT_EQ(post(list), 0);
  EXPECT_EQ(next_completion(cq_.get()).wr_id, 1u);
  EXPECT_EQ(next_completion(cq_.get()).wr_id, 2u);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(remote_.data(), remote_.data() + 8192, 64), 0);
}

TEST_F(RdmaTest, AZeroBasedMrIsAddressedFromZero) {
  Buffer there(pd_.get(), 4096, kAllAccess | IBV_ACCESS_ZERO_BASED);
  local_.fill(1);
  ASSERT_EQ(carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 16), 100, there.rkey()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(local_.data(), there.data() + 100, 16), 0);
}

TEST_F(RdmaTest, AnMrWithIovaIsAddressedThere) {
  constexpr uint64_t kIova = 0x7000000;
  Mr mr(ibv_reg_mr_iova(pd_.get(), remote_.data(), 4096, kIova, kAllAccess));
  ASSERT_NE(mr, nullptr);
  local_.fill(1);
  ASSERT_EQ(carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 16), kIova + 100, mr->rkey).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(16, 0, 100));
}

// ---- refused by the responder ----

class RdmaErrorTest : public RdmaTest {
 protected:
  void expect_remote_access_error(const ibv_wc& wc) {
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state_of(requester_.get()), IBV_QPS_ERR);
    EXPECT_EQ(state_of(responder_.get()), IBV_QPS_ERR);
  }
};

TEST_F(RdmaErrorTest, AWrongRkey) {
  expect_remote_access_error(
      carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 8), remote_.address(), remote_.rkey() ^ 0xff00));
}

TEST_F(RdmaErrorTest, TheLkeyIsNoRkey) {
  expect_remote_access_error(
      carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 8), remote_.address(), remote_.lkey()));
}

TEST_F(RdmaErrorTest, BeyondTheEnd) {
  expect_remote_access_error(
      carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 8), remote_.address(kBufferSize - 7), remote_.rkey()));
}

TEST_F(RdmaErrorTest, BeforeTheBeginning) {
  expect_remote_access_error(
      carry_out_at(IBV_WR_RDMA_READ, local_.sge(0, 8), remote_.address() - 1, remote_.rkey()));
}

TEST_F(RdmaErrorTest, WriteWhereTheMrForbidsIt) {
  Buffer there(pd_.get(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  expect_remote_access_error(
      carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 8), there.address(), there.rkey()));
  EXPECT_EQ(there.data()[0], 0);
}

TEST_F(RdmaErrorTest, ReadWhereTheMrForbidsIt) {
  Buffer there(pd_.get(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  expect_remote_access_error(carry_out_at(IBV_WR_RDMA_READ, local_.sge(0, 8), there.address(), there.rkey()));
}

TEST_F(RdmaErrorTest, AnMrOfAnotherPd) {
  Pd other(ibv_alloc_pd(context_.get()));
  Buffer there(other.get(), 64);
  expect_remote_access_error(
      carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 8), there.address(), there.rkey()));
}

TEST_F(RdmaErrorTest, ADeregisteredMr) {
  const uint32_t rkey = remote_.rkey();
  remote_.unregister();
  expect_remote_access_error(carry_out_at(IBV_WR_RDMA_WRITE, local_.sge(0, 8), remote_.address(), rkey));
  EXPECT_EQ(remote_.data()[0], 0);
}

// InfiniBand 9.7.4.1.1: an operation that the QP does not allow is an invalid request to a responder.
TEST_F(RdmaErrorTest, WriteWhereTheQpForbidsIt) {
  make_pair({.access = IBV_ACCESS_REMOTE_READ});
  local_.fill(1);
  const ibv_wc wc = carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 8));
  EXPECT_TRUE(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR)
      << ibv_wc_status_str(wc.status);
  EXPECT_EQ(remote_.data()[0], 0);
}

TEST_F(RdmaErrorTest, ReadIntoMemoryWithoutLocalWrite) {
  Buffer read_only(pd_.get(), 64, 0);
  EXPECT_EQ(carry_out(IBV_WR_RDMA_READ, read_only.sge(0, 8)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaErrorTest, NothingAfterAFailureTakesEffect) {
  local_.fill(1);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr list[2] = {request(IBV_WR_RDMA_WRITE, &sge, 1, 1), request(IBV_WR_RDMA_WRITE, &sge, 1, 2)};
  list[0].next = &list[1];
  list[0].wr.rdma.rkey ^= 0xff00;
  ASSERT_EQ(post(list), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(remote_.data()[0], 0);
}

int64_t processor_time_ns(clockid_t of) {
  timespec now;
  clock_gettime(of, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// A long message goes in pieces: the call that posts it carries out some of it; polling, or the service
// thread, does the rest. Measured in CPU time of this thread and this process, to which other programs do not
// add. Time that a host takes from its guest does count, so one of several messages has to show it.
TEST_F(PairTest, PostingALongMessageTakesAFractionOfCarryingItOut) {
  constexpr size_t kLong = size_t{128} << 20;
  Buffer from(pd_.get(), kLong), to(pd_.get(), kLong);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    double fraction = 1;
    for (int rounds = 0; rounds < 8 && fraction >= 0.25; ++rounds) {
      ibv_sge sge = from.sge(0, kLong);
      ibv_send_wr wr = request(opcode, &sge);
      wr.wr.rdma = {to.address(), to.rkey()};
      const int64_t begin = processor_time_ns(CLOCK_PROCESS_CPUTIME_ID);
      const int64_t thread_begin = processor_time_ns(CLOCK_THREAD_CPUTIME_ID);
      ASSERT_EQ(post(&wr), 0);
      const int64_t posted = processor_time_ns(CLOCK_THREAD_CPUTIME_ID) - thread_begin;
      ASSERT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
      const int64_t all = processor_time_ns(CLOCK_PROCESS_CPUTIME_ID) - begin;
      fraction = std::min(fraction, static_cast<double>(posted) / static_cast<double>(all));
    }
    EXPECT_LT(fraction, 0.25) << "of the work of opcode " << opcode << " is done by the call that posts it";
  }
}

}  // namespace
}  // namespace verbena::test
