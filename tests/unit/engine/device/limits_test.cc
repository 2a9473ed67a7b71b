// SPDX-License-Identifier: BSD-2-Clause
//
// What the device claims is exact: the maximum works, one more is refused.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <optional>

#include "engine/rules/device_attributes.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

DeviceTableOptions small_device() {
  DeviceTableOptions options{.count = 2};
  DeviceLimits& limits = options.limits;
  limits.max_qp = 4;
  limits.max_cq = 3;
  limits.max_mr = 5;
  limits.max_pd = 3;
  limits.max_mw = 2;
  limits.max_ah = 4;
  limits.max_dm_size = 8192;
  limits.max_qp_wr = 100;  // not a power of two
  limits.max_sge = 7;
  limits.max_sge_rd = 5;
  limits.max_inline_data = 50;
  limits.max_cqe = 1000;
  limits.max_mr_size = 8192;
  limits.max_qp_rd_atom = 3;
  limits.max_qp_init_rd_atom = 2;
  limits.max_res_rd_atom = 4;
  limits.max_msg_sz = 4096;
  limits.active_mtu = 512;
  return options;
}

struct Limits : ::testing::Test {
  TemporaryNode node{small_device()};
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  std::vector<uint8_t> bytes = std::vector<uint8_t>(16384);

  ibv_device_attr claims() {
    ibv_device_attr_ex attr;
    EXPECT_EQ(query_device(context.get(), &attr), 0);
    return attr.orig_attr;
  }

  // Makes objects until one is refused, and destroys them all. Returns how many there were; `*error`: the
  // refusal.
  template <typename T>
  int made(const std::function<int(T**)>& make, int* error) {
    std::vector<Owned<T>> all;
    for (;;) {
      T* object = nullptr;
      *error = make(&object);
      if (*error != 0) return static_cast<int>(all.size());
      all.emplace_back(object);
      if (all.size() > 64) return -1;
    }
  }

  int make_qp_with(Cq* cq, const ibv_qp_cap& cap, Owned<Qp>* out = nullptr) {
    ibv_qp_init_attr init{};
    init.cap = cap;
    init.qp_type = IBV_QPT_RC;
    Qp* qp = nullptr;
    const int error = create_qp(pd.get(), &init, cq, cq, 0, &qp);
    if (error != 0) return error;
    Owned<Qp> owned(qp);
    given = init.cap;
    if (out != nullptr) *out = std::move(owned);
    return 0;
  }
  ibv_qp_cap given{};
};

TEST_F(Limits, Pds) {
  int error = 0;
  EXPECT_EQ(made<Pd>([&](Pd** out) { return alloc_pd(context.get(), out); }, &error) + 1, claims().max_pd);
  EXPECT_EQ(error, ENOMEM);
}

TEST_F(Limits, Cqs) {
  int error = 0;
  const auto make = [&](Cq** out) { return create_cq(context.get(), 4, -1, 0, 0, out); };
  EXPECT_EQ(made<Cq>(make, &error), claims().max_cq);
  EXPECT_EQ(error, ENOMEM);
}

TEST_F(Limits, Mrs) {
  int error = 0;
  const auto make = [&](Mr** out) {
    return reg_mr(pd.get(), bytes.data(), 64, reinterpret_cast<uint64_t>(bytes.data()), 0, out);
  };
  EXPECT_EQ(made<Mr>(make, &error), claims().max_mr);
  EXPECT_EQ(error, ENOMEM);
}

TEST_F(Limits, MemoryWindows) {
  Mw* mws[3] = {};
  EXPECT_EQ(alloc_mw(pd.get(), IBV_MW_TYPE_1, &mws[0]), 0);
  EXPECT_EQ(alloc_mw(pd.get(), IBV_MW_TYPE_2, &mws[1]), 0);
  EXPECT_EQ(claims().max_mw, 2);
  EXPECT_EQ(alloc_mw(pd.get(), IBV_MW_TYPE_1, &mws[2]), ENOMEM);
  EXPECT_EQ(dealloc_mw(mws[0]), 0);
  EXPECT_EQ(alloc_mw(pd.get(), IBV_MW_TYPE_1, &mws[0]), 0);
  for (Mw* mw : {mws[0], mws[1]}) EXPECT_EQ(dealloc_mw(mw), 0);
}

TEST_F(Limits, AddressHandles) {
  std::vector<Ah*> ahs;
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  Ah* ah = nullptr;
  while (ahs.size() < 64 && create_ah(pd.get(), &attr, &ah) == 0) ahs.push_back(ah);
  EXPECT_EQ(static_cast<int>(ahs.size()), claims().max_ah);
  for (Ah* each : ahs) EXPECT_EQ(destroy_ah(each), 0);
}

TEST_F(Limits, DeviceMemory) {
  ibv_alloc_dm_attr attr{};
  Dm *one = nullptr, *two = nullptr, *three = nullptr;
  attr.length = 4096;
  EXPECT_EQ(alloc_dm(context.get(), &attr, &one), 0);
  EXPECT_EQ(alloc_dm(context.get(), &attr, &two), 0);
  EXPECT_EQ(alloc_dm(context.get(), &attr, &three), ENOMEM);
  EXPECT_EQ(free_dm(one), 0);
  EXPECT_EQ(alloc_dm(context.get(), &attr, &one), 0);
  for (Dm* dm : {one, two}) EXPECT_EQ(free_dm(dm), 0);
}

TEST_F(Limits, DeviceMemoryInOnePiece) {
  ibv_alloc_dm_attr attr{};
  Dm* dm = nullptr;
  attr.length = 8192;
  ASSERT_EQ(alloc_dm(context.get(), &attr, &dm), 0);
  EXPECT_EQ(free_dm(dm), 0);
  attr.length = 8193;
  EXPECT_EQ(alloc_dm(context.get(), &attr, &dm), EINVAL);
}

TEST_F(Limits, Qps) {
  int error = 0;
  Owned<Cq> cq = make_cq(context.get());
  const auto make = [&](Qp** out) {
    ibv_qp_init_attr init{};
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    return create_qp(pd.get(), &init, cq.get(), cq.get(), 0, out);
  };
  EXPECT_EQ(made<Qp>(make, &error), claims().max_qp);
  EXPECT_EQ(error, ENOMEM);
}

TEST(WithoutXrc, NoQueuePairOfItIsCreated) {
  DeviceTableOptions options{.count = 1};
  options.limits.max_xrcd = 0;
  const TemporaryNode node{options};
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get(), 4);
  ibv_qp_init_attr init{};
  init.cap = {4, 0, 1, 0, 0};
  init.qp_type = IBV_QPT_XRC_SEND;
  Qp* qp = nullptr;
  EXPECT_EQ(create_qp(pd.get(), &init, cq.get(), nullptr, 0, &qp), EOPNOTSUPP);
  init.qp_type = IBV_QPT_RC;
  ASSERT_EQ(create_qp(pd.get(), &init, cq.get(), cq.get(), 0, &qp), 0);
  const Owned<Qp> owned(qp);
}

TEST_F(Limits, ARefusedObjectIsNotCounted) {
  Owned<Cq> one = make_cq(context.get()), two = make_cq(context.get());
  Cq* refused = nullptr;
  EXPECT_EQ(create_cq(context.get(), 4, -1, 99, 0, &refused), EINVAL);
  Owned<Cq> three = make_cq(context.get());
  EXPECT_NE(three, nullptr);
}

TEST_F(Limits, WhatIsDestroyedCanBeMadeAgain) {
  int error = 0;
  const auto make = [&](Cq** out) { return create_cq(context.get(), 4, -1, 0, 0, out); };
  made<Cq>(make, &error);
  EXPECT_EQ(made<Cq>(make, &error), claims().max_cq);
}

TEST_F(Limits, EachDeviceHasItsOwn) {
  std::vector<Owned<Cq>> all;
  for (int i = 0; i < claims().max_cq; ++i) all.push_back(make_cq(context.get()));
  Owned<Context> other = open_device("verbena1");
  EXPECT_NE(make_cq(other.get()), nullptr);
}

TEST_F(Limits, AreCountedOverAllProcesses) {
  Child other([&](const Child& self) {
    Owned<Context> theirs = open_device();
    Owned<Cq> one = make_cq(theirs.get()), two = make_cq(theirs.get());
    self.tell(two ? 'y' : 'n');
    return self.hear() == 'q' ? 0 : 1;
  });
  ASSERT_EQ(other.answer(), 'y');
  Owned<Cq> third = make_cq(context.get());
  Cq* fourth = nullptr;
  EXPECT_EQ(create_cq(context.get(), 4, -1, 0, 0, &fourth), ENOMEM);
}

TEST_F(Limits, WhatAKilledProcessHadIsFreeAgain) {
  Child other([&](const Child& self) {
    Owned<Context> theirs = open_device();
    Owned<Cq> one = make_cq(theirs.get()), two = make_cq(theirs.get()), three = make_cq(theirs.get());
    self.tell(three ? 'y' : 'n');
    return self.hear() == 'q' ? 0 : 1;
  });
  ASSERT_EQ(other.answer(), 'y');
  other.kill_now();
  int error = 0;
  EXPECT_EQ(made<Cq>([&](Cq** out) { return create_cq(context.get(), 4, -1, 0, 0, out); }, &error),
            claims().max_cq);
}

// One capability of a QP, and the claim about it.
struct Capability {
  const char* name;
  uint32_t ibv_qp_cap::*value;
  uint32_t most;
};
struct Capabilities : Limits, ::testing::WithParamInterface<Capability> {
  Owned<Cq> cq = make_cq(context.get());
  int make(uint32_t value) {
    ibv_qp_cap cap{1, 1, 1, 1, 0};
    cap.*GetParam().value = value;
    return make_qp_with(cq.get(), cap);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, Capabilities,
                         ::testing::Values(Capability{"SendWr", &ibv_qp_cap::max_send_wr, 100},
                                           Capability{"RecvWr", &ibv_qp_cap::max_recv_wr, 100},
                                           Capability{"SendSge", &ibv_qp_cap::max_send_sge, 7},
                                           Capability{"RecvSge", &ibv_qp_cap::max_recv_sge, 7},
                                           Capability{"Inline", &ibv_qp_cap::max_inline_data, 50}),
                         [](const auto& capability) { return std::string(capability.param.name); });

TEST_P(Capabilities, TheMaximumIsGivenExactly) {
  EXPECT_EQ(make(GetParam().most), 0);
  EXPECT_EQ(given.*GetParam().value, GetParam().most);
}
TEST_P(Capabilities, OneMoreIsRefused) { EXPECT_EQ(make(GetParam().most + 1), EINVAL); }

TEST_F(Limits, NoQueueIsSaidToBeDeeperThanTheDeviceClaims) {
  Owned<Cq> cq = make_cq(context.get());
  EXPECT_EQ(make_qp_with(cq.get(), {65, 65, 1, 1, 0}), 0);  // 128, were it not for the claim
  EXPECT_EQ(given.max_send_wr, 100u);
  EXPECT_EQ(given.max_recv_wr, 100u);
}

TEST_F(Limits, CompletionQueueEntries) {
  const int most = claims().max_cqe;
  Owned<Cq> cq = make_cq(context.get(), most);
  EXPECT_EQ(cq_capacity(cq.get()), most);
  Cq* refused = nullptr;
  EXPECT_EQ(create_cq(context.get(), most + 1, -1, 0, 0, &refused), EINVAL);
}

TEST_F(Limits, SizeOfARegion) {
  Mr* mr = nullptr;
  const auto address = reinterpret_cast<uint64_t>(bytes.data());
  EXPECT_EQ(reg_mr(pd.get(), bytes.data(), claims().max_mr_size, address, 0, &mr), 0);
  const Owned<Mr> exactly(mr);
  EXPECT_EQ(reg_mr(pd.get(), bytes.data(), claims().max_mr_size + 1, address, 0, &mr), EINVAL);
}

struct RequestsInFlight : Limits {
  Owned<Cq> cq = make_cq(context.get());
  Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
  const GidEntry& gid() { return node.directory().devices().devices[0].ports[0].gids[0]; }
  QpSetup setup;
  int rtr(uint8_t resources, ibv_mtu mtu = IBV_MTU_256) {
    EXPECT_EQ(to_init(qp.get()), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = mtu;
    attr.dest_qp_num = qp_number(qp.get());
    attr.max_dest_rd_atomic = resources;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    std::memcpy(attr.ah_attr.grh.dgid.raw, gid().raw.data(), 16);
    return modify_qp(qp.get(), &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  int rts(uint8_t outstanding) {
    setup.max_rd_atomic = outstanding;
    return to_rts(qp.get(), setup);
  }
};

TEST_F(RequestsInFlight, AsResponderUpToTheClaim) { EXPECT_EQ(rtr(3), 0); }
TEST_F(RequestsInFlight, AsResponderNotAboveTheClaim) { EXPECT_EQ(rtr(4), EINVAL); }
TEST_F(RequestsInFlight, OfAllQueuePairsTogetherUpToTheClaim) {
  Owned<Qp> second = make_qp(pd.get(), cq.get(), cq.get());
  ASSERT_EQ(claims().max_res_rd_atom, 4);
  ASSERT_EQ(rtr(3), 0);
  std::swap(qp, second);
  EXPECT_EQ(rtr(2), ENOMEM);
  EXPECT_EQ(to_state(qp.get(), IBV_QPS_RESET), 0);
  EXPECT_EQ(rtr(1), 0);
}
TEST_F(RequestsInFlight, OfADestroyedQueuePairAreFreeAgain) {
  ASSERT_EQ(rtr(3), 0);
  qp = nullptr;
  qp = make_qp(pd.get(), cq.get(), cq.get());
  EXPECT_EQ(rtr(3), 0);
}
TEST_F(RequestsInFlight, AsInitiatorUpToTheClaim) {
  ASSERT_EQ(rtr(1), 0);
  EXPECT_EQ(rts(2), 0);
}
TEST_F(RequestsInFlight, AsInitiatorNotAboveTheClaim) {
  ASSERT_EQ(rtr(1), 0);
  EXPECT_EQ(rts(3), EINVAL);
}
TEST_F(RequestsInFlight, PathMtuUpToTheClaim) { EXPECT_EQ(rtr(1, IBV_MTU_512), 0); }
TEST_F(RequestsInFlight, PathMtuNotAboveTheClaim) { EXPECT_EQ(rtr(1, IBV_MTU_1024), EINVAL); }

struct MessageSize : ::testing::Test {
  TemporaryNode node{small_device()};
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Owned<Cq> cq = make_cq(context.get());
  Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get(), {.sge = 7});
  Region memory{pd.get(), 8192};
  void SetUp() override {
    const QpSetup setup{.max_rd_atomic = 1, .max_dest_rd_atomic = 1};
    ASSERT_EQ(to_init(qp.get(), setup), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_512;
    attr.dest_qp_num = qp_number(qp.get());
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    std::memcpy(attr.ah_attr.grh.dgid.raw, node.directory().devices().devices[0].ports[0].gids[0].raw.data(), 16);
    ASSERT_EQ(modify_qp(qp.get(), &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    ASSERT_EQ(to_rts(qp.get(), setup), 0);
  }
  ibv_wc_status write(uint32_t length) {
    EXPECT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, {memory.sge(0, length)}, memory.address(), memory.rkey()), 0);
    return completion(cq.get()).status;
  }
};

TEST_F(MessageSize, AReadOfAsManySgesAsTheClaim) {
  EXPECT_EQ(rdma(qp.get(), IBV_WR_RDMA_READ, Sges(5, memory.sge(0, 8)), memory.address(4096), memory.rkey()),
            0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
}
TEST_F(MessageSize, AReadOfOneMoreSgeIsRefused) {
  EXPECT_EQ(rdma(qp.get(), IBV_WR_RDMA_READ, Sges(6, memory.sge(0, 8)), memory.address(4096), memory.rkey()),
            ENOMEM);
}
TEST_F(MessageSize, AWriteMayHaveMore) {
  EXPECT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, Sges(6, memory.sge(0, 8)), memory.address(4096), memory.rkey()),
            0);
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_SUCCESS);
}
TEST_F(MessageSize, UpToTheClaim) { EXPECT_EQ(write(4096), IBV_WC_SUCCESS); }
TEST_F(MessageSize, NotAboveTheClaim) { EXPECT_EQ(write(4097), IBV_WC_LOC_LEN_ERR); }

}  // namespace
}  // namespace verbena
