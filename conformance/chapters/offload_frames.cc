// SPDX-License-Identifier: BSD-2-Clause
//
// Ethernet frames between raw packet QPs of the device, and the rules that steer them. The frames come back
// where the device, or what is at the other end of its cable, returns them. Where none does, the tests cannot
// tell.
#include "chapters/frames_fixture.h"

namespace conformance::offload_frames_chapter {
namespace {

using Fixture = FramesTest;

CONFORMANCE_TEST(offload, FramesFollowTheirRule, "ibv_create_flow.steers", "ibv_destroy_flow.ends") {
  need_frames();
  const auto one = receiver(), two = receiver();
  Flow first = rule(*one, mac(1));
  const Flow second = rule(*two, mac(2));
  for (const uint8_t to : {1, 2, 3}) send(mac(to));
  const uint8_t at_one = next(*one), at_two = next(*two);
  if (at_one == 0 && at_two == 0) throw NotTested{"no frame of the device comes back to it"};
  EXPECT_EQ(at_one, 1);
  EXPECT_EQ(at_two, 2);
  EXPECT_EQ(next(*one), 0);
  EXPECT_EQ(next(*two), 0);
  const About about("ibv_destroy_flow.ends");
  ASSERT_SUCCEEDS(ibv_destroy_flow(first.release()));
  send(mac(1));
  EXPECT_EQ(next(*one), 0);
}

CONFORMANCE_TEST(offload, LowerValuesComeFirst, "ibv_create_flow.priority") {
  need_frames();
  need_return();
  const auto one = receiver(), two = receiver();
  const Flow later = rule(*one, mac(1), 1);
  const Flow sooner = rule(*two, mac(1), 0);
  send(mac(1));
  EXPECT_EQ(next(*two), 1);
  EXPECT_EQ(next(*one), 0);
}

// Alone: the frames of other tests would come here as well.
CONFORMANCE_TEST_AS(Traits().alone(), offload, TheDefaultReceivesTheRest, "ibv_create_flow.default") {
  need_frames();
  need_return();
  const auto one = receiver(), rest = receiver();
  const Flow flow = rule(*one, mac(1));
  const Flow all = rule(*rest, IBV_FLOW_ATTR_ALL_DEFAULT, nullptr);
  send(mac(1));
  send(mac(2));
  EXPECT_EQ(next(*one), 1);
  EXPECT_EQ(next(*one), 0);
  // Other programs may send frames, too.
  uint8_t seen = next(*rest);
  while (seen != 0 && seen != 2) seen = next(*rest);
  EXPECT_EQ(seen, 2);
}

CONFORMANCE_TEST(offload, ARuleKeepsItsQp, "ibv_destroy_qp.flow") {
  need_frames();
  const auto one = receiver();
  const Flow flow = rule(*one, mac(1));
  EXPECT_REFUSED_WITH((EBUSY), ibv_destroy_qp(one->qp));
}

CONFORMANCE_TEST(offload, CountersCountWhatMatches, "ibv_read_counters.counts",
                 "ibv_attach_counters_point_flow.bound") {
  need_frames();
  ibv_counters_init_attr init = {};
  Counters counters(CALL(ibv_create_counters(context(), &init)));
  if (!counters) throw NotClaimed{"ibv_create_counters refused with " + errno_text(errno)};
  ibv_counter_attach_attr point = {};
  point.counter_desc = IBV_COUNTER_PACKETS;
  if (CALL(ibv_attach_counters_point_flow(counters.get(), &point, nullptr)) == ENOTSUP)
    throw NotClaimed{"packets are not counted"};
  point.counter_desc = IBV_COUNTER_BYTES;
  point.index = 1;
  const bool has_bytes = CALL(ibv_attach_counters_point_flow(counters.get(), &point, nullptr)) == 0;
  const auto one = receiver();
  const Flow flow = rule(*one, mac(1), 0, counters.get());
  {
    const About about("ibv_attach_counters_point_flow.bound");
    point.index = 0;
    EXPECT_REFUSED(ibv_attach_counters_point_flow(counters.get(), &point, nullptr));
    EXPECT_REFUSED(ibv_destroy_counters(counters.get()));
  }
  for (const uint8_t to : {1, 2, 1}) send(mac(to));
  if (next(*one) == 0) throw NotTested{"no frame of the device comes back to it"};
  EXPECT_EQ(next(*one), 1);
  uint64_t values[2] = {};
  ASSERT_SUCCEEDS(ibv_read_counters(counters.get(), values, 2, 0));
  EXPECT_EQ(values[0], 2u);
  if (has_bytes) {
    EXPECT_GE(values[1], 2 * frame_size);
  }
}

}  // namespace
}  // namespace conformance::offload_frames_chapter
