// SPDX-License-Identifier: BSD-2-Clause
//
// COMPARE AND SWAP, FETCH AND ADD: ibv_post_send(3), InfiniBand 9.4.5.
#include "pair.h"

namespace verbena::test {
namespace {

class AtomicTest : public PairTest {
 protected:
  uint64_t& target(size_t offset = 0) { return *reinterpret_cast<uint64_t*>(remote_.data() + offset); }
  uint64_t& result() { return *reinterpret_cast<uint64_t*>(local_.data()); }

  ibv_wc swap(uint64_t compare, uint64_t value) {
    ibv_sge sge = local_.sge(0, 8);
    ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge);
    wr.wr.atomic.compare_add = compare;
    wr.wr.atomic.swap = value;
    return carry_out(wr);
  }
  ibv_wc add(uint64_t value, uint64_t address, uint32_t rkey, uint32_t length = 8) {
    ibv_sge sge = local_.sge(0, length);
    ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
    wr.wr.atomic.compare_add = value;
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
    return carry_out(wr);
  }
  ibv_wc add(uint64_t value) { return add(value, remote_.address(), remote_.rkey()); }
};

TEST_F(AtomicTest, SwapsWhatIsEqual) {
  target() = 7;
  const ibv_wc wc = swap(7, 9);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(target(), 9u);
  EXPECT_EQ(result(), 7u);
}

TEST_F(AtomicTest, LeavesWhatIsNotEqual) {
  target() = 8;
  EXPECT_EQ(swap(7, 9).status, IBV_WC_SUCCESS);
  EXPECT_EQ(target(), 8u);
  EXPECT_EQ(result(), 8u);
}

TEST_F(AtomicTest, AddsAndGivesTheOldValue) {
  target() = 40;
  const ibv_wc wc = add(2);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(target(), 42u);
  EXPECT_EQ(result(), 40u);
}

TEST_F(AtomicTest, AddWrapsAround) {
  target() = UINT64_MAX;
  ASSERT_EQ(add(2).status, IBV_WC_SUCCESS);
  EXPECT_EQ(target(), 1u);
}

TEST_F(AtomicTest, LeavesTheNeighbours) {
  target(8) = 1;
  ASSERT_EQ(add(UINT64_MAX).status, IBV_WC_SUCCESS);
  EXPECT_EQ(target(8), 1u);
}

// InfiniBand 9.4.5.3 and table 61: an address that is no multiple of 8 is an invalid request.
TEST_F(AtomicTest, AnUnalignedAddressIsAnInvalidRequest) {
  EXPECT_EQ(add(1, remote_.address(4), remote_.rkey()).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(target(), 0u);
}

TEST_F(AtomicTest, AnMrWithoutRemoteAtomicIsARemoteAccessError) {
  Buffer there(pd_.get(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(add(1, there.address(), there.rkey()).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(there.data()[0], 0);
}

TEST_F(AtomicTest, AWrongRkeyIsARemoteAccessError) {
  EXPECT_EQ(add(1, remote_.address(), remote_.rkey() ^ 0xff00).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(AtomicTest, AResultThatIsNotEightBytesFailsLocally) {
  ibv_sge sge = local_.sge(0, 4);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
  wr.wr.atomic.compare_add = 1;
  ibv_send_wr* bad = nullptr;
  const int refused = ibv_post_send(requester_.get(), &wr, &bad);
  if (refused == 0) {
    EXPECT_EQ(next_status(cq_.get()), IBV_WC_LOC_LEN_ERR);
  } else {
    EXPECT_EQ(refused, EINVAL);
  }
  EXPECT_EQ(target(), 0u);
}

}  // namespace
}  // namespace verbena::test
