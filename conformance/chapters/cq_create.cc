// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues: creating, resizing and modifying them, and completion channels as such.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "support/pair.h"

namespace conformance::cq_create_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  Cq create(int entries, void* cq_context = nullptr, ibv_comp_channel* channel = nullptr, int vector = 0) {
    return Cq(CALL(ibv_create_cq(context(), entries, cq_context, channel, vector)));
  }
};

CONFORMANCE_TEST(cq, HasAtLeastTheEntries, "ibv_create_cq.at-least", "ibv_create_cq.one",
                 "ibv_destroy_cq.zero") {
  for (const int entries : {1, 2, 3, 17, 100, 255, 256, 257}) {
    if (entries > device().attributes().max_cqe) continue;
    Cq cq = create(entries);
    ASSERT_NE(cq, nullptr) << entries << " entries";
    if (entries == 1) {
      ABOUT("ibv_create_cq.one") EXPECT_GE(cq->cqe, 1);
    } else {
      ABOUT("ibv_create_cq.at-least") EXPECT_GE(cq->cqe, entries);
    }
    ABOUT("ibv_destroy_cq.zero") EXPECT_SUCCEEDS(cq.destroy());
  }
}

CONFORMANCE_TEST(cq, FieldsAreThoseGiven, "ibv_create_cq.context", "ibv_create_cq.channel-optional") {
  int mark = 0;
  const Channel channel = make_channel(device());
  const Cq cq = create(4, &mark, channel);
  {
    const About about("ibv_create_cq.context");
    expect_cq_of_channel(cq);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(cq->cq_context, &mark);
    EXPECT_EQ(cq->context, context());
    EXPECT_EQ(cq->channel, channel.get());
  }
  const About about("ibv_create_cq.channel-optional");
  const Cq without = create(4);
  ASSERT_NE(without, nullptr);
  EXPECT_EQ(without->channel, nullptr);
}

CONFORMANCE_TEST_AS(Traits().alone(), cq, MaximumCanBeHad, "ibv_create_cq.max") {
  const Cq cq = create(device().attributes().max_cqe);
  if (!cq) throw NotTested{"max_cqe entries are not to be had on this machine: " + errno_text(errno)};
  EXPECT_GE(cq->cqe, device().attributes().max_cqe);
}

CONFORMANCE_TEST(cq, BeyondTheMaximumIsRefused, "ibv_create_cq.beyond-max", "ibv_create_cq.negative",
                 "ibv_create_cq.zero") {
  {
    const About about("ibv_create_cq.beyond-max");
    const int most = device().attributes().max_cqe;
    if (most == std::numeric_limits<int>::max()) {
      not_claimed("max_cqe is as large as the argument");
    } else if (const Cq cq = create(most + 1)) {
      EXPECT_GT(cq->cqe, most);
    }
  }
  const auto made = [&](int entries) {
    const Cq cq = create(entries);
    return cq ? "created with " + std::to_string(cq->cqe) : "refused with " + errno_text(errno);
  };
  observe("ibv_create_cq.negative", made(-1));
  observe("ibv_create_cq.zero", made(0));
}

CONFORMANCE_TEST(cq, EveryVectorIsAccepted, "ibv_create_cq.vector", "ibv_create_cq.vector-range") {
  const int count = context()->num_comp_vectors;
  ABOUT("ibv_create_cq.vector") {
    EXPECT_GE(count, 1);
    for (int vector = 0; vector < count; ++vector)
      EXPECT_NE(create(4, nullptr, nullptr, vector), nullptr) << vector;
  }
  const About about("ibv_create_cq.vector-range");
  EXPECT_EQ(create(4, nullptr, nullptr, count), nullptr) << "vector " << count;
  EXPECT_EQ(create(4, nullptr, nullptr, -1), nullptr) << "vector -1";
}

CONFORMANCE_TEST(cq, BusyWithAQp, "ibv_destroy_cq.busy") {
  const Pd pd = make_pd(device());
  Cq send = make_cq(device()), receive = make_cq(device());
  ibv_qp_init_attr attr = init_attributes({}, send, receive);
  Qp qp(CALL(ibv_create_qp(pd, &attr)));
  if (!qp && is_refusal_of_qp(errno)) throw NotClaimed{"QPs of type RC refused with " + errno_text(errno)};
  ASSERT_NE(qp, nullptr);
  EXPECT_REFUSED(ibv_destroy_cq(send));
  EXPECT_REFUSED(ibv_destroy_cq(receive));
  EXPECT_SUCCEEDS(qp.destroy());
  EXPECT_SUCCEEDS(send.destroy());
  EXPECT_SUCCEEDS(receive.destroy());
}

CONFORMANCE_TEST(cq, NothingIsUsedUp, "ibv_destroy_cq.reuse") {
  for (int i = 0; i < 1000; ++i) {
    Cq cq(ibv_create_cq(context(), 16, nullptr, nullptr, 0));
    ASSERT_NE(cq, nullptr) << "round " << i;
    ASSERT_EQ(cq.destroy(), 0) << "round " << i;
  }
}

class ResizeTest : public Fixture {
 protected:
  int resize(ibv_cq* cq, int entries) {
    const int error = CALL(ibv_resize_cq(cq, entries));
    if (error == EOPNOTSUPP || error == ENOSYS)
      throw NotClaimed{"ibv_resize_cq refused with " + errno_text(error)};
    return error;
  }
  // A CQ in which completions wait, with the ids 0 ... count - 1.
  ibv_cq* with_unpolled() {
    PairSpec spec;
    spec.both.separate_cqs = true;
    pair(spec);
    for (uint64_t id = 0; id < count; ++id) {
      EXPECT_EQ(near().receive(0, 64, id), 0);
      EXPECT_EQ(far().post(send_request({{0, 8}})), 0);
      EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
    }
    return pair().native().end.receives();
  }
  void expect_unpolled() {
    const auto found = near().poll(count, scaled(std::chrono::seconds(2)), true);
    ASSERT_EQ(found.size(), count) << "completions that waited";
    for (uint64_t id = 0; id < count; ++id) EXPECT_EQ(found[id].id, id);
  }

  static constexpr uint32_t count = 6;
};

namespace resizing {
using Fixture = ResizeTest;

CONFORMANCE_TEST(cq, GrowsAndShrinks, "ibv_resize_cq.larger", "ibv_resize_cq.smaller",
                 "ibv_resize_cq.updates-cqe") {
  const Cq cq = create(8);
  ASSERT_NE(cq, nullptr);
  const int large = std::min(500, device().attributes().max_cqe);
  const int error = resize(cq, large);  // not claimed: none of the clauses is
  ABOUT("ibv_resize_cq.larger") EXPECT_TRUE(succeeded(error));
  ABOUT("ibv_resize_cq.updates-cqe") EXPECT_GE(cq->cqe, large);
  ABOUT("ibv_resize_cq.smaller") EXPECT_TRUE(succeeded(resize(cq, 20)));
  ABOUT("ibv_resize_cq.updates-cqe") EXPECT_GE(cq->cqe, 20);
}

CONFORMANCE_TEST(cq, WhatWaitsSurvivesAResize, "ibv_resize_cq.keeps") {
  ibv_cq* const cq = with_unpolled();
  if (const int error = resize(cq, std::min(300, device().attributes().max_cqe)); error != 0)
    throw NotTested{"it is refused with " + errno_text(error) + ": ibv_resize_cq.larger"};
  expect_unpolled();
}

// It is the user who must not. A device may refuse, round up, not shrink, or keep them beside the new
// entries.
CONFORMANCE_TEST(cq, SmallerThanWhatWaits, "ibv_resize_cq.below-unpolled") {
  if (const int error = resize(with_unpolled(), 1); error != 0) {
    EXPECT_TRUE(refused(error));
  }
  expect_unpolled();
}

}  // namespace resizing

CONFORMANCE_TEST(cq, ModerationAsClaimed, "ibv_modify_cq.moderation", "ibv_modify_cq.mask") {
  const Cq cq = create(8);
  ASSERT_NE(cq, nullptr);
  const auto& caps = device().extended().cq_mod_caps;
  if (caps.max_cq_count == 0 && caps.max_cq_period == 0) throw NotClaimed{"cq_mod_caps are 0"};
  ibv_modify_cq_attr attr = {};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate.cq_count = std::min<uint16_t>(4, caps.max_cq_count);
  attr.moderate.cq_period = std::min<uint16_t>(100, caps.max_cq_period);
  EXPECT_SUCCEEDS(ibv_modify_cq(cq, &attr));
  const About about("ibv_modify_cq.mask");
  attr.attr_mask = 1u << 31;
  EXPECT_REFUSED(ibv_modify_cq(cq, &attr));
}

CONFORMANCE_TEST(cq, ChannelComesAndGoes, "ibv_create_comp_channel.pointer",
                 "ibv_destroy_comp_channel.zero") {
  const About about("ibv_create_comp_channel.pointer");
  Channel channel = make_channel(device());
  EXPECT_GE(fcntl(channel->fd, F_GETFD), 0);
  pollfd waiting{channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  ABOUT("ibv_destroy_comp_channel.zero") EXPECT_SUCCEEDS(channel.destroy());
}

CONFORMANCE_TEST(cq, ChannelIsBusyWithItsCq, "ibv_destroy_comp_channel.busy") {
  Channel channel = make_channel(device());
  Cq cq = create(4, nullptr, channel);
  expect_cq_of_channel(cq);
  ASSERT_NE(cq, nullptr);
  EXPECT_REFUSED(ibv_destroy_comp_channel(channel));
  EXPECT_SUCCEEDS(cq.destroy());
  EXPECT_SUCCEEDS(channel.destroy());
}

}  // namespace
}  // namespace conformance::cq_create_chapter
