// SPDX-License-Identifier: BSD-2-Clause
//
// Posting a send allocates no memory: what it needs was set aside when the queue pair was created.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "unit/engine/datagram_scene.h"

namespace {
thread_local bool counting = false;
thread_local int taken = 0;

void* take(std::size_t size) {
  if (counting) ++taken;
  if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (counting) ++taken;
  return std::malloc(size != 0 ? size : 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  if (counting) ++taken;
  return std::malloc(size != 0 ? size : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace verbena {
namespace {

class PostingMemory : public ::testing::Test, protected DatagramScene {
 protected:
  // How often `posting` allocated memory.
  template <typename Posting>
  static int of(Posting&& posting) {
    taken = 0;
    counting = true;
    posting();
    counting = false;
    return taken;
  }
  int of_datagram(uint32_t qpn, ibv_ah* ah = nullptr) {
    Sges sges{out.sge(0, 100)};
    ibv_send_wr wr = datagram(sges, qpn);
    if (ah != nullptr) wr.wr.ud.ah = ah;
    return of([&] { EXPECT_EQ(post(*a, wr), 0); });
  }
};

TEST_F(PostingMemory, NoneForTheFirstDatagramToAQueuePair) {
  of_datagram(a.number());  // the process is known from now on
  EXPECT_EQ(of_datagram(b.number()), 0);
}

TEST_F(PostingMemory, NoneForDatagramsToMoreThanCanBeRemembered) {
  for (uint32_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(of_datagram(0x800000 + i), 0) << i;
    a.sent();
  }
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}, 4), 0);
  EXPECT_EQ(of_datagram(b.number()), 0);
  EXPECT_EQ(b.received().wr_id, 4u);
}

TEST_F(PostingMemory, NoneForADatagramThatWaits) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  ASSERT_EQ(modify_qp(*a, &attr, IBV_QP_STATE), 0);
  Sges sges{out.sge(0, 100)};
  const ibv_send_wr wr = datagram(sges, b.number());
  EXPECT_EQ(of([&] { EXPECT_EQ(post(*a, wr), 0); }), 0);
}

TEST_F(PostingMemory, NoneForAGroupWhoseMembersAreKnown) {
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  ASSERT_EQ(attach_mcast(*b, &group, 0), 0);
  ibv_ah_attr attr = address_of(gid());
  attr.grh.dgid = group;
  Address ah(pd.get(), attr);
  of_datagram(0xffffff, ah.ah());
  EXPECT_EQ(of_datagram(0xffffff, ah.ah()), 0);
  EXPECT_EQ(detach_mcast(*b, &group, 0), 0);
}

TEST(PostingMemoryOfConnections, NoneForASend) {
  Pair pair;
  Region memory(pair.pd.get(), 4096);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 2048)}), 0);
  Sges sges{memory.sge(2048, 2048)};
  const ibv_send_wr wr = request(IBV_WR_SEND, sges);
  taken = 0;
  counting = true;
  const int error = post(*pair.a, wr);
  counting = false;
  EXPECT_EQ(error, 0);
  EXPECT_EQ(taken, 0);
}

}  // namespace
}  // namespace verbena
