// SPDX-License-Identifier: BSD-2-Clause
//
// rsocket(7): direct placement, riomap and riowrite.
#include <sys/mman.h>

#include "fixture.h"

namespace verbena::rsockets {
namespace {

// The number of mappings has to be set before connecting; an accepted rsocket has its listener's.
class IomapTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    if (HasFatalFailure()) return;
    int mappings = 4;
    ASSERT_EQ(rsetsockopt(listener_.get(), SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof(mappings)), 0);
    std::thread server([this] { passive_ = Socket(raccept(listener_.get(), nullptr, nullptr)); });
    active_ = make_stream();
    EXPECT_EQ(rsetsockopt(active_.get(), SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof(mappings)), 0);
    EXPECT_EQ(rconnect(active_.get(), address_.get(), address_.size()), 0) << strerror(errno);
    server.join();
    ASSERT_GE(passive_.get(), 0);
  }
  // rclose does not return while a mapping exists: rs_free (rsocket.c, 44.0) frees the index that its
  // riounmap needs.
  void TearDown() override {
    if (passive_.get() >= 0) riounmap(passive_.get(), target_.data(), target_.size());
  }
  // The peer has the mapping when bytes sent after it have arrived.
  void pass_on(const Socket& from, const Socket& to) {
    char byte = 0;
    ASSERT_EQ(rsend(from.get(), "x", 1, 0), 1);
    ASSERT_EQ(rrecv(to.get(), &byte, 1, 0), 1);
  }

  std::vector<uint8_t> target_ = std::vector<uint8_t>(65536);
};

TEST_F(IomapTest, WhatIsWrittenLiesInTheMappedBuffer) {
  ASSERT_EQ(riomap(passive_.get(), target_.data(), target_.size(), PROT_WRITE, 0, 4096), 4096)
      << strerror(errno);
  pass_on(passive_, active_);
  const std::vector<uint8_t> bytes = pattern(10'000);
  ASSERT_EQ(riowrite(active_.get(), bytes.data(), bytes.size(), 4096 + 100, 0), bytes.size());
  pass_on(active_, passive_);  // what is sent afterwards arrives afterwards
  EXPECT_EQ(memcmp(target_.data() + 100, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(target_[99], 0);
  EXPECT_EQ(target_[100 + bytes.size()], 0);
}

TEST_F(IomapTest, AnOffsetIsChosenWhenNoneIsGiven) {
  EXPECT_NE(riomap(passive_.get(), target_.data(), target_.size(), PROT_WRITE, 0, -1), -1) << strerror(errno);
}

TEST_F(IomapTest, UnmappingReturnsZero) {
  ASSERT_EQ(riomap(passive_.get(), target_.data(), target_.size(), PROT_WRITE, 0, 0), 0);
  EXPECT_EQ(riounmap(passive_.get(), target_.data(), target_.size()), 0) << strerror(errno);
}

}  // namespace
}  // namespace verbena::rsockets
