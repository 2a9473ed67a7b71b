// SPDX-License-Identifier: BSD-2-Clause
//
// Verbs not offered, and what a forked child may do with its parent's objects: query the device, and allocate
// device memory. All else fails, harmlessly.

#include <cstring>
#include <vector>

#include "../unsupported_verbs.h"
#include "common/in_child.h"
#include "pair.h"

namespace verbena::test {
namespace {

TEST_F(QpTest, EveryVerbNotOfferedAnswersEopnotsupp) {
  Qp qp = make_qp();
  Buffer buffer(pd_.get(), 64);
  Mr mr(ibv_reg_mr(pd_.get(), buffer.data(), 64, 0));
  for (const UnsupportedVerb& verb : kUnsupportedVerbs) {
    errno = 0;
    EXPECT_EQ(verb.call({context_.get(), pd_.get(), cq_.get(), qp.get(), mr.get()}), EOPNOTSUPP) << verb.name;
  }
}

class ClosedDeviceTest : public DeviceTest {
 protected:
  void SetUp() override {}  // no other context
};

// Memory that was freed may belong to another allocation.
void use_what_is_free() {
  std::vector<void*> blocks;
  for (size_t size = 16; size < 4096; size += 16) {
    blocks.push_back(malloc(size));
    memset(blocks.back(), 0xa5, size);
  }
  for (void* block : blocks) free(block);
}

TEST_F(ClosedDeviceTest, ItsObjectsMayBeDestroyedAfterwards) {
  Context context = open_device();
  ASSERT_NE(context, nullptr);
  Pd pd(ibv_alloc_pd(context.get()));
  Channel channel(ibv_create_comp_channel(context.get()));
  Cq cq(ibv_create_cq(context.get(), 16, nullptr, channel.get(), 0));
  Buffer buffer(pd.get(), 64);
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  Qp qp(ibv_create_qp(pd.get(), &attr));
  ASSERT_NE(qp, nullptr);
  context.reset();
  use_what_is_free();
  qp.reset();
  buffer = {};
  cq.reset();
  channel.reset();
  pd.reset();
  EXPECT_NE(open_device(), nullptr);
}

class ForkTest : public PairTest {};

TEST_F(ForkTest, AChildsPostIsAnIoError) {
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  EXPECT_EQ(in_child([&] { return post(&wr); }), EIO);
}

TEST_F(ForkTest, AChildsModifyIsAnIoErrorAndChangesNothing) {
  EXPECT_EQ(in_child([&] { return to_state(requester_.get(), IBV_QPS_ERR); }), EIO);
  EXPECT_EQ(state_of(requester_.get()), IBV_QPS_RTS);
}

TEST_F(ForkTest, AChildsAllocPdIsAnIoError) {
  EXPECT_EQ(in_child([&] { return ibv_alloc_pd(context_.get()) == nullptr ? errno : 0; }), EIO);
}

TEST_F(ForkTest, AChildQueriesTheDevice) {
  EXPECT_EQ(in_child([&] {
              ibv_device_attr device;
              ibv_port_attr port;
              if (const int error = ibv_query_device(context_.get(), &device); error != 0) return error;
              if (const int error = ibv_query_port(context_.get(), 1, &port); error != 0) return error;
              return device.max_qp > 0 && port.state == IBV_PORT_ACTIVE ? 0 : -1;
            }),
            0);
}

TEST_F(ForkTest, AChildAllocatesDeviceMemoryThatIsItsOwn) {
  EXPECT_EQ(in_child([&] {
              ibv_alloc_dm_attr attr = {64, 0, 0};
              ibv_dm* dm = ibv_alloc_dm(context_.get(), &attr);
              if (dm == nullptr) return errno;
              char bytes[8] = "1234567";
              char back[8] = "";
              if (const int error = ibv_memcpy_to_dm(dm, 0, bytes, sizeof(bytes)); error != 0) return error;
              if (const int error = ibv_memcpy_from_dm(back, dm, 0, sizeof(back)); error != 0) return error;
              return memcmp(bytes, back, sizeof(bytes)) == 0 ? ibv_free_dm(dm) : -1;
            }),
            0);
}

TEST_F(ForkTest, AChildsDestroyLeavesTheParentsObject) {
  EXPECT_EQ(in_child([&] { return ibv_destroy_qp(responder_.get()); }), 0);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
}

TEST_F(ForkTest, AChildOpensAgain) {
  EXPECT_EQ(in_child([] {
              Context context = open_device();
              if (context == nullptr) return 1;
              Pd pd(ibv_alloc_pd(context.get()));
              return pd == nullptr ? 2 : 0;
            }),
            0);
}

}  // namespace
}  // namespace verbena::test
