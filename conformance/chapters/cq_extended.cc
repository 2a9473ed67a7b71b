// SPDX-License-Identifier: BSD-2-Clause
//
// Extended completion queues: creation, and the iterator.
#include <arpa/inet.h>

#include "chapters/cq_extended_fixture.h"
#include "suite/family.h"

namespace conformance::cq_extended_chapter {
namespace {

using Fixture = ExtendedCqTest;

CONFORMANCE_TEST(cq, ExtendedHasItsFields, "ibv_create_cq_ex.fields", "ibv_create_cq_ex.at-least",
                 "ibv_create_cq_ex.destroy") {
  int mark = 0;
  const Channel channel = make_channel(device());
  ibv_cq_init_attr_ex attr = attributes(20);
  attr.cq_context = &mark;
  attr.channel = channel;
  CqEx cq = create(attr);
  ASSERT_NE(cq, nullptr);
  {
    const About about("ibv_create_cq_ex.fields");
    EXPECT_EQ(cq->cq_context, &mark);
    EXPECT_EQ(cq->channel, channel.get());
    EXPECT_EQ(cq->context, context());
  }
  ABOUT("ibv_create_cq_ex.at-least") EXPECT_GE(cq->cqe, 20);
  ABOUT("ibv_create_cq_ex.destroy") EXPECT_SUCCEEDS(ibv_destroy_cq(ibv_cq_ex_to_cq(cq.release())));
}

CONFORMANCE_TEST(cq, ExtendedVectorIsChecked, "ibv_create_cq_ex.vector") {
  ibv_cq_init_attr_ex attr = attributes();
  ASSERT_NE(create(attr), nullptr);
  attr.comp_vector = static_cast<uint32_t>(context()->num_comp_vectors);
  EXPECT_EQ(CALL(ibv_create_cq_ex(context(), &attr)), nullptr);
}

CONFORMANCE_TEST(cq, ExtendedUnknownFlagsAreRefused, "ibv_create_cq_ex.unknown-flags") {
  ASSERT_NE(create(attributes()), nullptr);
  ibv_cq_init_attr_ex wc = attributes();
  wc.wc_flags |= 1ull << 40;
  EXPECT_EQ(CALL(ibv_create_cq_ex(context(), &wc)), nullptr) << "wc_flags";
  ibv_cq_init_attr_ex mask = attributes();
  mask.comp_mask = 1u << 31;
  EXPECT_EQ(CALL(ibv_create_cq_ex(context(), &mask)), nullptr) << "comp_mask";
  ibv_cq_init_attr_ex flags = attributes();
  flags.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  flags.flags = 1u << 31;
  EXPECT_EQ(CALL(ibv_create_cq_ex(context(), &flags)), nullptr) << "flags";
}

CONFORMANCE_TEST(cq, ExtendedEmptyIsEnoent, "ibv_start_poll.empty") {
  connect();
  ibv_poll_cq_attr attr = {};
  EXPECT_EQ(CALL(ibv_start_poll(cq_.get(), &attr)), ENOENT);
  EXPECT_EQ(CALL(ibv_start_poll(cq_.get(), &attr)), ENOENT);
  send(1);
  ASSERT_EQ(start(), 0);
  ibv_end_poll(cq_.get());
}

CONFORMANCE_TEST(cq, ExtendedIterates, "ibv_start_poll.iterates", "ibv_next_poll.end") {
  if (is_working("family.events")) channel_ = Channel(CALL(ibv_create_comp_channel(context())));
  connect();
  send_many(3);  // so that one batch has them all; those that come later are another one's
  {
    const About about("ibv_start_poll.iterates");
    ASSERT_EQ(start(), 0);
    for (uint64_t id = 1; id <= 3; ++id) {
      if (id > 1) {
        ASSERT_EQ(next(), 0);
      }
      EXPECT_EQ(cq_->wr_id, id);
    }
  }
  ABOUT("ibv_next_poll.end") EXPECT_EQ(CALL(ibv_next_poll(cq_.get())), ENOENT);
  CALL(ibv_end_poll(cq_.get()));
  send(4);
  ABOUT("ibv_next_poll.end") ASSERT_EQ(start(), 0) << "the CQ stays valid";
  ABOUT("ibv_start_poll.iterates") EXPECT_EQ(cq_->wr_id, 4u);
  ibv_end_poll(cq_.get());
}

CONFORMANCE_TEST(cq, ExtendedGoesOnAfterABatch, "ibv_end_poll.continues") {
  connect();
  send(1);
  send(2);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(cq_->wr_id, 1u);
  CALL(ibv_end_poll(cq_.get()));
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(cq_->wr_id, 2u);
  CALL(ibv_end_poll(cq_.get()));
}

CONFORMANCE_TEST(cq, ExtendedReadsTheFields, "ibv_wc_read.fields", "ibv_wc_read.imm") {
  connect();
  send(0xfedcba9876543210, IBV_WR_SEND_WITH_IMM);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(cq_->wr_id, 0xfedcba9876543210u);
  EXPECT_EQ(cq_->status, IBV_WC_SUCCESS);
  EXPECT_EQ(CALL(ibv_wc_read_opcode(cq_.get())), IBV_WC_RECV);
  EXPECT_EQ(CALL(ibv_wc_read_byte_len(cq_.get())), 64u);
  EXPECT_EQ(CALL(ibv_wc_read_qp_num(cq_.get())), qp_->qp_num);
  EXPECT_NE(CALL(ibv_wc_read_wc_flags(cq_.get())) & IBV_WC_WITH_IMM, 0u);
  const About about("ibv_wc_read.imm");
  EXPECT_EQ(CALL(ibv_wc_read_imm_data(cq_.get())), htonl(0x01020304));
  ibv_end_poll(cq_.get());
}

CONFORMANCE_TEST(cq, ExtendedForOneThread, "ibv_create_cq_ex.single-threaded") {
  ASSERT_NE(create(attributes()), nullptr);
  ibv_cq_init_attr_ex attr = attributes();
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  const CqEx cq(CALL(ibv_create_cq_ex(context(), &attr)));
  observe("ibv_create_cq_ex.single-threaded",
          cq ? "a CQ for one thread is created" : "a CQ for one thread is refused with " + errno_text(errno));
}

CONFORMANCE_TEST(cq, ExtendedTimeStamps, "ibv_wc_read.completion-ts") {
  const uint64_t mask = device().extended().completion_timestamp_mask;
  if (mask == 0) throw NotClaimed{"completion_timestamp_mask is 0"};
  connect(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  for (uint64_t id = 1; id <= 4; ++id) {
    send(id);
    ASSERT_EQ(start(), 0);
    const uint64_t stamp = CALL(ibv_wc_read_completion_ts(cq_.get()));
    ibv_end_poll(cq_.get());
    EXPECT_EQ(stamp & ~mask, 0u) << "bits outside of completion_timestamp_mask";
  }
}

// Of times that lie apart: the clock of the day may be set meanwhile.
uint64_t steady_time() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

CONFORMANCE_TEST(cq, ExtendedWallClock, "ibv_wc_read.wallclock") {
  ibv_cq_init_attr_ex attr = attributes();
  attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  if (CqEx(CALL(ibv_create_cq_ex(context(), &attr))) == nullptr && is_refusal_of_qp(errno))
    throw NotClaimed{"such a CQ is refused with " + errno_text(errno)};
  connect(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  constexpr uint64_t tolerance = 10'000'000;  // ns: the adapter's clock is converted, not read
  const auto completed_at = [&](uint64_t id) {
    send(id);
    if (start() != 0) throw Deviation{"expected: a completion within 3 s; seen: none", Where::current()};
    const uint64_t stamp = CALL(ibv_wc_read_completion_wallclock_ns(cq_.get()));
    ibv_end_poll(cq_.get());
    return stamp;
  };
  // The clock need not be CLOCK_REALTIME; it runs as fast.
  const uint64_t begin = steady_time();
  const uint64_t first = completed_at(1), polled = steady_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const uint64_t posted = steady_time(), second = completed_at(2), end = steady_time();
  EXPECT_GE(second - first + tolerance, posted - polled);
  EXPECT_LE(second - first, end - begin + tolerance);
}

}  // namespace
}  // namespace conformance::cq_extended_chapter
