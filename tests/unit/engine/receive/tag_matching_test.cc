// SPDX-License-Identifier: BSD-2-Clause
//
// Tag matching (ibv_post_srq_ops(3)) within a process, and with senders in other processes that die.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "unit/common/child.h"
#include "unit/engine/matcher.h"

namespace verbena {
namespace {

class TagMatchingTest : public ::testing::Test {
 protected:
  TagMatchingTest() {
    connect(sender_.get(), qp_number(receiver_.get()), scene_.gid());
    connect(receiver_.get(), qp_number(sender_.get()), scene_.gid());
    for (int i = 0; i < 8; ++i) EXPECT_EQ(receive(sender_.get(), {from_.sge(8192, 256)}, 200 + i), 0);
  }
  void send_message(ibv_tmh_op opcode, uint64_t tag, uint32_t length, uint32_t context = 0) {
    from_.fill(static_cast<uint8_t>(tag));
    write_header(from_.data(), opcode, tag, context);
    ASSERT_EQ(send(sender_.get(), {from_.sge(0, length)}), 0);
    EXPECT_EQ(completion(sender_cq_.get()).status, IBV_WC_SUCCESS);
  }

  Scene scene_;
  Owned<Cq> sender_cq_ = make_cq(scene_.context.get()), other_cq_ = make_cq(scene_.context.get());
  Region from_{scene_.pd.get(), 16384};
  Matcher matcher_{scene_.context.get(), scene_.pd.get()};
  Owned<Qp> sender_ = make_qp(scene_.pd.get(), sender_cq_.get(), sender_cq_.get());
  Owned<Qp> receiver_ = matcher_.make_receiver(other_cq_.get());
};

TEST_F(TagMatchingTest, OperationsCompleteWithTheirOwnWrId) {
  uint32_t handle = 0;
  ASSERT_EQ(matcher_.add(1, 5, IBV_OPS_SIGNALED, kTagRoom, &handle), 0);
  Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_ADD);
  EXPECT_EQ(polled.wc.wr_id, 51u);
  EXPECT_EQ(polled.wc.wc_flags, 0u);
  ASSERT_EQ(matcher_.remove(handle), 0);
  polled = matcher_.next();
  EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_DEL);
  EXPECT_EQ(polled.wc.status, IBV_WC_SUCCESS);
  ASSERT_EQ(matcher_.sync(0), 0);
  EXPECT_EQ(matcher_.next().wc.opcode, IBV_WC_TM_SYNC);
  EXPECT_TRUE(nothing(matcher_.cq.get()));
}

TEST_F(TagMatchingTest, WhatIsWrongIsRefused) {
  EXPECT_EQ(matcher_.remove(0xffff), EINVAL);
  ibv_ops_wr wr{};
  wr.opcode = static_cast<ibv_ops_wr_opcode>(77);
  EXPECT_EQ(matcher_.operate(wr), EINVAL);
  for (uint32_t i = 0; i < Matcher::kTags; ++i) ASSERT_EQ(matcher_.add(i, i), 0);
  EXPECT_EQ(matcher_.add(0, 9), ENOMEM);
  for (uint32_t i = 0; i < 8; ++i) ASSERT_EQ(matcher_.sync(0), 0);
  EXPECT_EQ(matcher_.sync(0), ENOMEM);
  for (uint32_t i = 0; i < 8; ++i) matcher_.next();
  EXPECT_EQ(matcher_.sync(0), 0);
}

// Of one packet: one completion. The header stays out of the buffer.
TEST_F(TagMatchingTest, AnEagerMessageGoesToItsTag) {
  ASSERT_EQ(matcher_.add(2, 9), 0);
  ASSERT_EQ(matcher_.add(3, 7), 0);
  send_message(IBV_TMH_EAGER, 7, kTmh + 100, 0x1234);
  const Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_MATCH} | IBV_WC_TM_DATA_VALID);
  EXPECT_EQ(polled.wc.wr_id, 3u);
  EXPECT_EQ(polled.wc.byte_len, 100u);
  EXPECT_EQ(polled.wc.qp_num, qp_number(receiver_.get()));
  EXPECT_EQ(polled.tag.tag, 7u);
  EXPECT_EQ(polled.tag.priv, 0x1234u);
  EXPECT_EQ(std::memcmp(matcher_.buffer(3), from_.data() + kTmh, 100), 0);
  EXPECT_EQ(matcher_.buffer(3)[100], 0);
  EXPECT_EQ(matcher_.add(3, 7), 0) << "it can be added again";
}

// Of several packets: that it was matched is told first.
TEST_F(TagMatchingTest, ALongEagerMessageCompletesTwice) {
  ASSERT_EQ(matcher_.add(0, 1), 0);
  send_message(IBV_TMH_EAGER, 1, kTmh + 4000);
  Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_MATCH});
  EXPECT_EQ(polled.wc.wr_id, 0u);
  EXPECT_EQ(polled.tag.tag, 1u);
  polled = matcher_.next();
  EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_DATA_VALID});
  EXPECT_EQ(polled.wc.byte_len, 4000u);
  EXPECT_EQ(std::memcmp(matcher_.buffer(0), from_.data() + kTmh, 4000), 0);
}

TEST_F(TagMatchingTest, AnUnexpectedMessageTakesAReceiveRequest) {
  send_message(IBV_TMH_EAGER, 7, kTmh + 10);
  Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(polled.wc.wc_flags, 0u);
  EXPECT_EQ(polled.wc.wr_id, 100u);
  EXPECT_EQ(polled.wc.byte_len, kTmh + 10);
  EXPECT_EQ(polled.tag.tag, 0u);
  EXPECT_EQ(std::memcmp(matcher_.plain_buffer(100), from_.data(), kTmh + 10), 0);
  // Not reported yet: the tag is not used.
  ASSERT_EQ(matcher_.add(0, 7, IBV_OPS_SIGNALED), 0);
  EXPECT_EQ(matcher_.next().wc.wc_flags, unsigned{IBV_WC_TM_SYNC_REQ});
  send_message(IBV_TMH_EAGER, 7, kTmh + 10);
  polled = matcher_.next();
  EXPECT_EQ(polled.wc.wr_id, 101u);
  EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_SYNC_REQ});
  ASSERT_EQ(matcher_.sync(2), 0);
  EXPECT_EQ(matcher_.next().wc.wc_flags, 0u);
  send_message(IBV_TMH_EAGER, 7, kTmh + 10);
  EXPECT_EQ(matcher_.next().wc.wr_id, 0u);
}

TEST_F(TagMatchingTest, MessagesWithoutATagAreNotCounted) {
  ASSERT_EQ(matcher_.add(0, 7), 0);
  send_message(IBV_TMH_NO_TAG, 7, kTmh + 10);
  send_message(IBV_TMH_FIN, 7, kTmh + 10);
  send_message(IBV_TMH_EAGER, 7, 8);
  for (uint64_t i = 0; i < 3; ++i) {
    const Polled polled = matcher_.next();
    EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_NO_TAG);
    EXPECT_EQ(polled.wc.wr_id, 100 + i);
  }
  ASSERT_EQ(matcher_.add(1, 8, IBV_OPS_SIGNALED), 0);
  EXPECT_EQ(matcher_.next().wc.wc_flags, 0u);
}

TEST_F(TagMatchingTest, DeletingATakenTagFails) {
  uint32_t handle = 0;
  ASSERT_EQ(matcher_.add(0, 7, 0, kTagRoom, &handle), 0);
  send_message(IBV_TMH_EAGER, 7, kTmh);
  ASSERT_EQ(matcher_.remove(handle), 0);
  EXPECT_EQ(matcher_.next().wc.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(matcher_.next().wc.status, IBV_WC_TM_ERR);
  ASSERT_EQ(matcher_.add(0, 7), 0);
  ASSERT_EQ(matcher_.remove(handle), 0);
  EXPECT_EQ(matcher_.next().wc.status, IBV_WC_TM_ERR) << "the handle of an earlier tag";
}

TEST_F(TagMatchingTest, AMessageThatIsTooLongFails) {
  ASSERT_EQ(matcher_.add(0, 7, 0, 10), 0);
  from_.fill(1);
  write_header(from_.data(), IBV_TMH_EAGER, 7);
  ASSERT_EQ(send(sender_.get(), {from_.sge(0, kTmh + 11)}), 0);
  EXPECT_EQ(completion(sender_cq_.get()).status, IBV_WC_REM_INV_REQ_ERR);
  const Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(polled.wc.wr_id, 0u);
}

// ---- rendezvous ----

class RendezvousTest : public TagMatchingTest {
 protected:
  void request(uint64_t tag, uint32_t length, uint32_t rkey) {
    from_.fill(static_cast<uint8_t>(tag));
    write_header(from_.data(), IBV_TMH_RNDV, tag);
    const ibv_rvh header{htobe64(from_.address(1024)), htobe32(rkey), htobe32(length)};
    std::memcpy(from_.data() + kTmh, &header, sizeof header);
    ASSERT_EQ(send(sender_.get(), {from_.sge(0, kTmh + sizeof header)}), 0);
    EXPECT_EQ(completion(sender_cq_.get()).status, IBV_WC_SUCCESS);
  }
};

TEST_F(RendezvousTest, TheMessageIsFetchedAndThePeerIsTold) {
  for (int round = 0; round < 40; ++round) {
    ASSERT_EQ(matcher_.add(0, 7), 0);
    request(7, 3000, from_.rkey());
    Polled polled = matcher_.next();
    ASSERT_EQ(polled.wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_MATCH});
    EXPECT_EQ(polled.tag.tag, 7u);
    polled = matcher_.next();
    ASSERT_EQ(polled.wc.status, IBV_WC_SUCCESS) << round;
    EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(polled.wc.wc_flags, unsigned{IBV_WC_TM_DATA_VALID});
    EXPECT_EQ(polled.wc.wr_id, 0u);
    EXPECT_EQ(polled.wc.byte_len, 3000u);
    EXPECT_EQ(std::memcmp(matcher_.buffer(0), from_.data() + 1024, 3000), 0);
    const ibv_wc told = completion(sender_cq_.get());
    EXPECT_EQ(told.opcode, IBV_WC_RECV);
    EXPECT_EQ(told.byte_len, kTmh + sizeof(ibv_rvh));
    EXPECT_EQ(from_.data()[8192], IBV_TMH_FIN);
    EXPECT_EQ(std::memcmp(from_.data() + 8193, from_.data() + 1, kTmh + sizeof(ibv_rvh) - 1), 0);
    EXPECT_TRUE(nothing(other_cq_.get()));
    ASSERT_EQ(receive(sender_.get(), {from_.sge(8192, 256)}), 0);
  }
}

TEST_F(RendezvousTest, WhatDoesNotFitIsLeftToTheProgram) {
  ASSERT_EQ(matcher_.add(0, 7, 0, 100), 0);
  request(7, 3000, from_.rkey());
  const Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
  EXPECT_EQ(polled.wc.wr_id, 0u);
  EXPECT_EQ(std::memcmp(matcher_.buffer(0), from_.data(), kTmh + sizeof(ibv_rvh)), 0);
  EXPECT_TRUE(nothing(sender_cq_.get()));
  EXPECT_EQ(matcher_.add(0, 7), 0);
}

TEST_F(RendezvousTest, AnUnexpectedRequestIsLeftToTheProgram) {
  request(7, 3000, from_.rkey());
  const Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(polled.wc.wc_flags, 0u);
  EXPECT_EQ(polled.wc.wr_id, 100u);
}

TEST_F(RendezvousTest, AWrongKeyEndsTheRendezvous) {
  ASSERT_EQ(matcher_.add(0, 7), 0);
  request(7, 3000, from_.rkey() ^ 0xff00);
  EXPECT_EQ(matcher_.next().wc.wc_flags, unsigned{IBV_WC_TM_MATCH});
  const Polled polled = matcher_.next();
  EXPECT_EQ(polled.wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
  EXPECT_EQ(polled.wc.wr_id, 0u);
}

// Those of a rendezvous have places of their own in the send queue.
TEST_F(RendezvousTest, TheProgramHasMaxSendWrPlaces) {
  constexpr uint32_t kMost = 8;
  receiver_ = matcher_.make_receiver(other_cq_.get(), kMost);
  sender_ = make_qp(scene_.pd.get(), sender_cq_.get(), sender_cq_.get());
  connect(sender_.get(), qp_number(receiver_.get()), scene_.gid());
  connect(receiver_.get(), qp_number(sender_.get()), scene_.gid());
  const auto write = [&](unsigned flags) {
    Sges sges{matcher_.tagged.sge(0, 8)};
    ibv_send_wr wr = verbena::request(IBV_WR_RDMA_WRITE, sges, 1, flags);
    wr.wr.rdma = {from_.address(4096), from_.rkey()};
    return post(receiver_.get(), wr);
  };
  for (int round = 0; round < 40; ++round) {
    ASSERT_EQ(receive(sender_.get(), {from_.sge(8192, 256)}), 0);
    for (uint32_t i = 0; i < kMost / 2; ++i) ASSERT_EQ(write(0), 0) << round;
    ASSERT_EQ(matcher_.add(0, 7), 0);
    request(7, 3000, from_.rkey());
    EXPECT_EQ(matcher_.next().wc.wc_flags, unsigned{IBV_WC_TM_MATCH});
    EXPECT_EQ(completion(sender_cq_.get()).byte_len, kTmh + sizeof(ibv_rvh));
    for (uint32_t i = 1; i < kMost / 2; ++i) ASSERT_EQ(write(0), 0) << round;
    ASSERT_EQ(write(IBV_SEND_SIGNALED), 0) << round;
    ASSERT_EQ(write(0), ENOMEM) << round;
    // Its completion frees its own places, and those of the requests before it.
    EXPECT_EQ(matcher_.next().wc.wc_flags, unsigned{IBV_WC_TM_DATA_VALID});
    for (uint32_t i = 0; i < kMost / 2; ++i) ASSERT_EQ(write(0), 0) << round;
    ASSERT_EQ(write(0), ENOMEM) << round;
    ASSERT_EQ(completion(other_cq_.get()).status, IBV_WC_SUCCESS);
    for (uint32_t i = 1; i < kMost / 2; ++i) ASSERT_EQ(write(0), 0) << round;
    ASSERT_EQ(write(IBV_SEND_SIGNALED), 0) << round;
    ASSERT_EQ(write(0), ENOMEM) << round;
    ASSERT_EQ(completion(other_cq_.get()).status, IBV_WC_SUCCESS);
  }
}

TEST_F(RendezvousTest, ItsTagIsFreeWhenTheQueuePairIsGone) {
  for (uint32_t i = 0; i < Matcher::kTags; ++i) ASSERT_EQ(matcher_.add(i, 7), 0);
  request(7, 3000, from_.rkey());
  receiver_.reset();
  EXPECT_EQ(matcher_.add(0, 7), 0);
}

// ---- senders in other processes ----

struct SharedQpns {
  std::atomic<uint32_t> sender, receiver;
};

// Sends tagged messages of `length` bytes, or of 16, in turn, until it is killed.
int send_until_killed(const Child& parent, SharedQpns* numbers, const GidEntry& gid, uint32_t length) {
  const Owned<Context> context = open_device();
  const Owned<Pd> pd = make_pd(context.get());
  const Owned<Cq> cq = make_cq(context.get());
  const Owned<Qp> qp = make_qp(pd.get(), cq.get(), cq.get());
  Region memory(pd.get(), length);
  numbers->sender = qp_number(qp.get());
  parent.tell('q');
  if (parent.hear() != 'g') return 1;
  connect(qp.get(), numbers->receiver, gid);
  for (uint64_t i = 0;; ++i) {
    write_header(memory.data(), IBV_TMH_EAGER, i % 3);
    if (send(qp.get(), {memory.sge(0, i % 2 == 0 ? length : kTmh)}) != 0) return 2;
    if (completion(cq.get()).status != IBV_WC_SUCCESS) return 3;
  }
}

class TagsOfManyProcesses : public ::testing::TestWithParam<uint32_t> {};

// However many senders die in the middle of a message, every tag comes back.
TEST_P(TagsOfManyProcesses, GoOnWhenSendersDie) {
  constexpr uint32_t kVictims = 6;
  const TemporaryNode node;
  const GidEntry& gid = node.directory().devices().devices[0].ports[0].gids[0];
  auto* const numbers = static_cast<SharedQpns*>(mmap(
      nullptr, kVictims * sizeof(SharedQpns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<std::unique_ptr<Child>> victims;
  for (uint32_t i = 0; i < kVictims; ++i)
    victims.push_back(std::make_unique<Child>(
        [&, i](const Child& parent) { return send_until_killed(parent, &numbers[i], gid, GetParam()); }));
  for (const auto& victim : victims) ASSERT_EQ(victim->answer(), 'q');
  {
    const Owned<Context> context = open_device();
    const Owned<Pd> pd = make_pd(context.get());
    const Owned<Cq> cq = make_cq(context.get());
    Matcher matcher(context.get(), pd.get());
    uint32_t unexpected = 0, in_use = 0;
    std::vector<uint32_t> handles;
    const auto add = [&](uint32_t i) {
      uint32_t handle = 0;
      const int error = matcher.add(i, i % 2 == 0 ? 0 : 2, 0, kTagRoom, &handle);
      if (error == 0) handles.push_back(handle);
      return error;
    };
    // Tag 1 is never added. A completion: the buffer, or the receive request, is given back.
    const auto use = [&](const Polled& polled) {
      if (polled.wc.wr_id >= 100) {
        matcher.fill(polled.wc.wr_id - 100);
        if (polled.wc.status == IBV_WC_SUCCESS) ++unexpected;
      } else if (polled.wc.status != IBV_WC_SUCCESS || (polled.wc.wc_flags & IBV_WC_TM_DATA_VALID) != 0) {
        --in_use;
      }
      matcher.operate([&] {
        ibv_ops_wr wr{};
        wr.opcode = IBV_WR_TAG_SYNC;
        wr.flags = IBV_OPS_TM_SYNC;
        wr.tm.unexpected_cnt = unexpected;
        return wr;
      }());
      if (in_use < Matcher::kTags && add(in_use) == 0) ++in_use;
    };
    for (uint32_t i = 0; i < Matcher::kTags; ++i) {
      ASSERT_EQ(add(i), 0);
      ++in_use;
    }
    std::vector<Owned<Qp>> receivers;
    for (uint32_t i = 0; i < kVictims; ++i) {
      receivers.push_back(matcher.make_receiver(cq.get()));
      Qp* const receiver = receivers.back().get();
      connect(receiver, numbers[i].sender, gid);
      numbers[i].receiver = qp_number(receiver);
      victims[i]->command('g');
      // Of earlier senders there may be more, with errors.
      for (uint32_t taken = 0; taken < 30 + 7 * i;) {
        const Polled polled = matcher.next();
        ASSERT_NE(polled.wc.status, IBV_WC_GENERAL_ERR) << i << " after " << taken;
        use(polled);
        if (polled.wc.qp_num == qp_number(receiver)) ++taken;
      }
      victims[i]->kill_now();
    }
    for (Polled polled; matcher.poll(&polled);) use(polled);
    // What is still in the list is taken out. Then all tags can be in use once more.
    for (const uint32_t handle : handles) {
      ASSERT_EQ(matcher.remove(handle), 0);
      while (matcher.next().wc.opcode != IBV_WC_TM_DEL) {
      }
    }
    for (uint32_t i = 0; i < Matcher::kTags; ++i) EXPECT_EQ(matcher.add(i, 9), 0) << i;
  }
  munmap(numbers, kVictims * sizeof(SharedQpns));
}

INSTANTIATE_TEST_SUITE_P(Length, TagsOfManyProcesses, ::testing::Values(64u, 1024u, 4000u));

}  // namespace
}  // namespace verbena
