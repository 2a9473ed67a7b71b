// SPDX-License-Identifier: BSD-2-Clause
//
// A device that was closed with objects left: to all other processes it is gone, and the objects may be
// destroyed afterwards. Garbage collectors destroy in any order (pyverbs, when a test has failed).
#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fabric/hazards.h"
#include "unit/common/own_process.h"
#include "unit/common/scoped_membership.h"
#include "unit/engine/played_node.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

TEST(AClosedDevice, MayHaveItsObjectsDestroyedAfterwards) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  pair.context.reset();
  EXPECT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), EIO);
  ibv_wc wc;
  EXPECT_EQ(poll_cq(pair.a.send_cq.get(), 1, &wc), -EIO);
  EXPECT_EQ(pair.node.slot_folders(), 0u);
  pair.context = open_device();
  EXPECT_NE(pair.context, nullptr);
  EXPECT_EQ(pair.node.slot_folders(), 1u);
}

TEST(AClosedDevice, MayHaveItsObjectsDestroyedWhileAnotherIsOpen) {
  Scene other;
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Owned<Cq> cq = make_cq(context.get());
  context.reset();
  cq.reset();
  pd.reset();
  EXPECT_EQ(other.node.slot_folders(), 1u);
}

TEST(AClosedDevice, MayHaveItsAddressHandlesDestroyedLast) {
  TemporaryNode node;
  Owned<Context> context = open_device();
  static Pd* pd = nullptr;  // reachable, so that leak checkers do not report it
  ASSERT_EQ(alloc_pd(context.get(), &pd), 0);
  ibv_ah_attr attr{};
  attr.is_global = attr.port_num = 1;
  std::memcpy(attr.grh.dgid.raw, node.directory().devices().devices[0].ports[0].gids[0].raw.data(), sizeof attr.grh.dgid.raw);
  Ah* ah = nullptr;
  ASSERT_EQ(create_ah(pd, &attr, &ah), 0);
  context.reset();
  EXPECT_EQ(dealloc_pd(pd), 0);
  EXPECT_EQ(destroy_ah(ah), 0);
}

// A peer's access to the program's memory ends before the device is closed.
TEST(AClosedDevice, IsNobodysAnyMore) {
  Pair pair;
  const ScopedMembership other(pair.node.path());
  const uint32_t slot = pair.context->process->membership().slot();
  HazardGuard guard(other.membership.hazards(), slot);
  std::atomic<bool> closed{false};
  std::thread closes([&] {
    pair.context.reset();
    closed = true;
  });
  EXPECT_TRUE(eventually([&] { return pair.node.slot_folders() == 1; }));  // the other one's
  EXPECT_FALSE(closed);
  guard.end();
  closes.join();
}

TEST(AClosedDevice, HangsUpOnOtherNodes) {
  PlayedNode there;
  there.end.connect_qp();
  there.meet();
  there.end.give_up_handle();
  there.end.context.reset();
  EXPECT_TRUE(there.hear().empty());
  EXPECT_TRUE(there.has_ended());
}

class LeftDevices : public ::testing::Test {
 protected:
  void leave_one() {
    Owned<Context> context = open_device();
    left.push_back(make_pd(context.get()));
    left_cqs.push_back(make_cq(context.get()));
  }
  TemporaryNode node;
  std::vector<Owned<Pd>> left;
  std::vector<Owned<Cq>> left_cqs;
};

TEST_F(LeftDevices, KeepNoDescriptorAndLittleOfTheAddressSpace) {
  constexpr size_t kTimes = 20;
  [[maybe_unused]] constexpr uint64_t kMost = 1024 * 1024;  // each, in KiB
  leave_one();
  const size_t descriptors = open_descriptors();
  [[maybe_unused]] const uint64_t before = number_in_status("/proc/self", "VmSize:");
  for (size_t i = 0; i < kTimes; ++i) leave_one();
  EXPECT_EQ(open_descriptors(), descriptors);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own memory counts, too
  EXPECT_LT((number_in_status("/proc/self", "VmSize:") - before) / kTimes, kMost);
#endif
}

TEST_F(LeftDevices, BesideAnOpenOneGiveBackAllWhenTheirObjectsAreDestroyed) {
  const Owned<Context> other = open_device();
  leave_one();
  left.clear();
  left_cqs.clear();
  leave_one();
  const size_t descriptors = open_descriptors();
  for (size_t i = 0; i < 20; ++i) {
    left.clear();
    left_cqs.clear();
    leave_one();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

}  // namespace
}  // namespace verbena
