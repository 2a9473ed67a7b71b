// SPDX-License-Identifier: BSD-2-Clause
//
// Shared receive queues.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <vector>

#include "support/pair.h"

namespace conformance::srq_chapter {
namespace {

// The kernel's core demands no such verb of a device (Linux drivers/infiniband/core/device.c,
// ib_device_check_mandatory()).
ibv_srq_attr query(ibv_srq* srq) {
  ibv_srq_attr attr = {};
  const int error = CALL(ibv_query_srq(srq, &attr));
  if (error == EOPNOTSUPP || error == ENOSYS)
    throw NotClaimed{"ibv_query_srq is refused with " + errno_text(error)};
  EXPECT_TRUE(succeeded(error));
  return attr;
}

class Fixture : public DeviceTest {
 protected:
  ibv_pd* pd() {
    if (!pd_) pd_ = make_pd(device());
    return pd_;
  }
  Srq create(ibv_srq_init_attr& attr) { return Srq(CALL(ibv_create_srq(pd(), &attr))); }
  void claimed() {
    if (device().attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
  }

 private:
  Pd pd_;
};

CONFORMANCE_TEST(srq, ComesAndGoes, "ibv_create_srq.pointer", "ibv_create_srq.as-claimed",
                 "ibv_create_srq.at-least", "ibv_create_srq.limit-irrelevant", "ibv_destroy_srq.zero") {
  claimed();
  int mark = 0;
  for (const uint32_t depth : {1u, 7u, 100u}) {
    ibv_srq_init_attr attr = {&mark, {depth, 1, 0}};
    Srq srq = create(attr);
    ASSERT_NE(srq, nullptr) << "errno " << errno_text(errno);
    ABOUT("ibv_create_srq.pointer") {
      EXPECT_EQ(srq->context, context());
      EXPECT_EQ(srq->pd, pd());
      EXPECT_EQ(srq->srq_context, &mark);
    }
    ABOUT("ibv_create_srq.at-least") {
      EXPECT_GE(attr.attr.max_wr, depth);
      EXPECT_GE(attr.attr.max_sge, 1u);
    }
    ABOUT("ibv_destroy_srq.zero") EXPECT_SUCCEEDS(srq.destroy());
  }
  const About about("ibv_create_srq.limit-irrelevant");
  ibv_srq_init_attr attr = {&mark, {100, 1, 0x7fffffff}};
  EXPECT_NE(create(attr), nullptr) << "errno " << errno_text(errno);
}

CONFORMANCE_TEST(srq, BeyondTheLimitsIsRefused, "ibv_create_srq.beyond-wr", "ibv_create_srq.beyond-sge") {
  claimed();
  const ibv_device_attr& d = device().attributes();
  const auto wr = static_cast<uint32_t>(d.max_srq_wr) + 1, sge = static_cast<uint32_t>(d.max_srq_sge) + 1;
  ibv_srq_init_attr longer = {nullptr, {wr, 1, 0}}, wider = {nullptr, {1, sge, 0}};
  {
    const About about("ibv_create_srq.beyond-wr");
    if (const Srq srq = create(longer)) {
      EXPECT_GE(longer.attr.max_wr, wr);
    }
  }
  const About about("ibv_create_srq.beyond-sge");
  if (const Srq srq = create(wider)) {
    EXPECT_GE(wider.attr.max_sge, sge);
  }
}

CONFORMANCE_TEST(srq, BusyWithAQp, "ibv_destroy_srq.busy") {
  Srq srq = make_srq(device(), pd());
  const Cq cq = make_cq(device());
  QpSpec spec;
  spec.srq = srq;
  Qp qp = make_qp(pd(), cq, spec);
  EXPECT_REFUSED(ibv_destroy_srq(srq));
  EXPECT_SUCCEEDS(qp.destroy());
  EXPECT_SUCCEEDS(srq.destroy());
}

CONFORMANCE_TEST(srq, MatchesTags, "ibv_create_srq_ex.tag-matching") {
  const ibv_tm_caps& caps = device().extended().tm_caps;
  if (caps.max_num_tags == 0 || (caps.flags & IBV_TM_CAP_RC) == 0)
    throw NotClaimed{"tm_caps has no tags for RC"};
  ibv_cq_init_attr_ex completions = {};
  completions.cqe = 16;
  completions.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  ibv_cq_ex* extended = CALL(ibv_create_cq_ex(context(), &completions));
  if (extended == nullptr && is_refusal_of_qp(errno))
    throw NotClaimed{"ibv_create_cq_ex refused with " + errno_text(errno)};
  ASSERT_NE(extended, nullptr) << "errno " << errno_text(errno);
  const Cq cq(ibv_cq_ex_to_cq(extended));
  ibv_srq_init_attr_ex attr = {};
  attr.attr = {10, 1, 0};
  attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  attr.srq_type = IBV_SRQT_TM;
  attr.pd = pd();
  attr.cq = cq;
  attr.tm_cap = {caps.max_num_tags, std::min(10u, caps.max_ops)};
  const Srq srq(CALL(ibv_create_srq_ex(context(), &attr)));
  EXPECT_NE(srq, nullptr) << "errno " << errno_text(errno);
}

CONFORMANCE_TEST(srq, ExtendedCreation, "ibv_create_srq_ex.basic", "ibv_create_srq_ex.at-least",
                 "ibv_create_srq_ex.unknown-mask") {
  claimed();
  ibv_srq_init_attr_ex attr = {};
  attr.attr = {10, 1, 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attr.srq_type = IBV_SRQT_BASIC;
  attr.pd = pd();
  Srq srq(CALL(ibv_create_srq_ex(context(), &attr)));
  if (!srq && is_refusal_of_qp(errno))
    throw NotClaimed{"ibv_create_srq_ex refused with " + errno_text(errno)};
  ABOUT("ibv_create_srq_ex.basic") ASSERT_NE(srq, nullptr);
  ABOUT("ibv_create_srq_ex.at-least") {
    EXPECT_GE(attr.attr.max_wr, 10u);
    EXPECT_GE(attr.attr.max_sge, 1u);
  }
  const About about("ibv_create_srq_ex.unknown-mask");
  attr.comp_mask |= 1u << 31;
  const Srq other(CALL(ibv_create_srq_ex(context(), &attr)));
  observe("ibv_create_srq_ex.unknown-mask", other ? "accepted" : "refused with " + errno_text(errno));
}

CONFORMANCE_TEST(srq, QueryGivesTheValues, "ibv_query_srq.values", "ibv_query_srq.limit-0") {
  claimed();
  ibv_srq_init_attr attr = {nullptr, {20, 1, 0}};
  const Srq srq = create(attr);
  ASSERT_NE(srq, nullptr);
  const ibv_srq_attr now = query(srq);
  {
    const About about("ibv_query_srq.values");
    EXPECT_GE(now.max_wr, attr.attr.max_wr);
    EXPECT_EQ(now.max_sge, attr.attr.max_sge);
  }
  const About about("ibv_query_srq.limit-0");
  EXPECT_EQ(now.srq_limit, 0u);
}

CONFORMANCE_TEST(srq, LimitIsChecked, "ibv_modify_srq.limit-range", "ibv_modify_srq.none-on-error",
                 "ibv_modify_srq.resize") {
  const Srq srq = make_srq(device(), pd());
  const ibv_srq_attr before = query(srq);
  ibv_srq_attr attr = before;
  attr.srq_limit = before.max_wr + 1;
  const int error = CALL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
  ABOUT("ibv_modify_srq.limit-range") EXPECT_TRUE(refused(error));
  if (error != 0) {
    ABOUT("ibv_modify_srq.none-on-error") EXPECT_EQ(query(srq).srq_limit, before.srq_limit);
  }
  attr.srq_limit = 0;
  attr.max_wr = before.max_wr + 10;
  const bool can = (device().attributes().device_cap_flags & IBV_DEVICE_SRQ_RESIZE) != 0;
  if (can) {
    const About about("ibv_modify_srq.resize");
    EXPECT_SUCCEEDS(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
    EXPECT_GE(query(srq).max_wr, before.max_wr + 10);
  } else {
    const About about("ibv_modify_srq.resize");
    if (const int refusal = CALL(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR)); refusal != 0) {
      EXPECT_TRUE(refused(refusal));
      EXPECT_EQ(query(srq).max_wr, before.max_wr);
    } else {
      EXPECT_GE(query(srq).max_wr, before.max_wr + 10);
    }
  }
}

// Two receiving QPs of the test's own that share an SRQ, and at the far end a sender for each.
class SharingTest : public PairTest {
 protected:
  void prepare(ibv_qp_type type = IBV_QPT_RC, uint32_t depth = 8) {
    pd_ = make_pd(device());
    srq_ = make_srq(device(), pd_, depth);
    cq_ = make_cq(device(), 64);
    mr_ = make_mr(pd_, buffer_);
    for (Qp& receiver : receivers_) {
      wire::MakeEnd sender;
      sender.type = type;
      senders_.emplace_back(topology().far(), sender);
      QpSpec spec;
      spec.type = type;
      spec.srq = srq_;
      receiver = make_qp(pd_, cq_, spec);
      connect(device(), receiver, senders_.back());
    }
  }
  ibv_sge element(size_t offset, size_t length) {
    return {buffer_.address(offset), static_cast<uint32_t>(length), mr_->lkey};
  }
  int post(uint64_t id, size_t offset = 0, size_t length = 64) {
    ibv_sge sge = element(offset, length);
    ibv_recv_wr wr = {id, nullptr, &sge, 1};
    ibv_recv_wr* bad;
    const int error = CALL(ibv_post_srq_recv(srq_, &wr, &bad));
    if (error == 0) posted_.insert(id);
    return error;
  }
  void can_be_resized() {
    if ((device().attributes().device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0)
      throw NotClaimed{"IBV_DEVICE_SRQ_RESIZE is not set"};
  }
  int resize(uint32_t max_wr) {
    ibv_srq_attr attr = {};
    attr.max_wr = max_wr;
    return CALL(ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR));
  }
  // Sends as many messages as there are requests first ... last. Each uses one that is posted; which comes
  // first is a matter of ibv_post_srq_recv.order.
  void use(uint64_t first, uint64_t last) {
    for (uint64_t id = first; id <= last; ++id) {
      send(id % 2);
      const ibv_wc wc = completion(cq_);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
      EXPECT_EQ(posted_.erase(wc.wr_id), 1u) << wc_text(wc);
      EXPECT_EQ(senders_[id % 2].completion().status, IBV_WC_SUCCESS);
    }
  }
  void send(size_t from) { EXPECT_EQ(senders_[from].post(send_request({{2048, 8}})), 0); }

  const Buffer buffer_{4096};
  Pd pd_;
  Srq srq_;
  Cq cq_;
  Mr mr_;
  Qp receivers_[2];
  std::vector<Endpoint> senders_;
  std::set<uint64_t> posted_;  // ids of the requests that no message has used in use()
};

namespace sharing {
using Fixture = SharingTest;

CONFORMANCE_TEST(srq, ServesWhoeverReceives, "ibv_post_srq_recv.zero", "ibv_post_srq_recv.any-qp",
                 "ibv_post_srq_recv.order", "ibv_post_srq_recv.wr-id") {
  prepare();
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(succeeded(post(id)));
  uint64_t id = 0;
  for (const size_t from : {1, 0, 0, 1}) {
    send(from);
    const ibv_wc wc = completion(cq_);
    ABOUT("ibv_post_srq_recv.any-qp") {
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
      EXPECT_EQ(wc.qp_num, receivers_[from]->qp_num);
    }
    ++id;
    const bool is_posted = wc.wr_id >= 1 && wc.wr_id <= 4;
    ABOUT("ibv_post_srq_recv.wr-id") EXPECT_TRUE(is_posted) << wc_text(wc);
    if (is_posted) {
      ABOUT("ibv_post_srq_recv.order") EXPECT_EQ(wc.wr_id, id);
    }
  }
}

CONFORMANCE_TEST(srq, ListStopsAtTheFirstRefused, "ibv_post_srq_recv.bad-wr",
                 "ibv_post_srq_recv.too-many-sges") {
  prepare();
  // Beyond every limit that the device tells: a device may tell none of SRQs, and take what a QP takes.
  const ibv_device_attr& d = device().attributes();
  std::vector<ibv_sge> many(static_cast<size_t>(std::max(d.max_srq_sge, d.max_sge)) + 1, element(0, 64));
  ibv_recv_wr list[3];
  for (uint64_t i = 0; i < 3; ++i) list[i] = {i, i < 2 ? &list[i + 1] : nullptr, many.data(), 1};
  list[1].num_sge = static_cast<int>(many.size());
  ibv_recv_wr* bad = nullptr;
  const int error = CALL(ibv_post_srq_recv(srq_, list, &bad));
  ABOUT("ibv_post_srq_recv.too-many-sges") EXPECT_NE(error, 0);
  const About about("ibv_post_srq_recv.bad-wr");
  if (error == 0) {
    not_tested("one element more is taken");
    return;
  }
  EXPECT_EQ(bad, &list[1]);
  ASSERT_TRUE(succeeded(post(77)));
  std::vector<uint64_t> taken = {0, 77};  // their order is another clause's
  for (int i = 0; i < 2; ++i) {
    send(0);
    const ibv_wc wc = completion(cq_);
    EXPECT_EQ(std::erase(taken, wc.wr_id), 1u) << wc_text(wc);
  }
}

CONFORMANCE_TEST(srq, FullQueueRefuses, "ibv_post_srq_recv.full") {
  prepare();
  // ibv_query_srq(3) may count entries that no request can have, so that the queue is full earlier.
  const uint32_t most = 16 * query(srq_).max_wr + 1024;
  for (uint32_t i = 0; i <= most; ++i) {
    const int result = post(i);
    if (result == 0) continue;
    EXPECT_GE(i, 8u) << "request " << i << " of 8 is refused";
    EXPECT_TRUE(refused(result));
    return;
  }
  ADD_FAILURE() << most << " requests were taken, and none was used";
}

CONFORMANCE_TEST(srq, LargerKeepsWhatIsPosted, "ibv_modify_srq.resize-room") {
  can_be_resized();
  prepare();
  const auto most = static_cast<uint32_t>(device().attributes().max_srq_wr);
  const uint32_t before = std::min(query(srq_).max_wr, 64u), after = std::min(4 * before + 1, most);
  uint64_t posted = 0;
  while (posted < std::min(before, 6u)) ASSERT_TRUE(succeeded(post(++posted)));
  use(1, 2);
  ASSERT_TRUE(succeeded(resize(after)));
  EXPECT_GE(query(srq_).max_wr, after);
  while (posted < after + 2) ASSERT_TRUE(succeeded(post(++posted))) << posted - 2 << " of " << after;
  use(3, posted);
  // And once more around.
  for (uint32_t i = 0; i < after; ++i) ASSERT_TRUE(succeeded(post(++posted))) << i << " of " << after;
  use(posted - after + 1, posted);
}

CONFORMANCE_TEST(srq, NotSmallerThanWhatIsPosted, "ibv_modify_srq.resize-posted") {
  can_be_resized();
  prepare();
  const uint32_t before = query(srq_).max_wr;
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(succeeded(post(id)));
  // A device may round 4 up, to 7 for example.
  if (const int error = resize(4); error != 0) {
    EXPECT_TRUE(refused(error));
    EXPECT_EQ(query(srq_).max_wr, before);
  } else {
    EXPECT_GE(query(srq_).max_wr, 5u);
  }
  use(1, 3);
  EXPECT_TRUE(succeeded(resize(4)));
  EXPECT_GE(query(srq_).max_wr, 4u);
  use(4, 5);
  for (uint64_t id = 6; id <= 9; ++id) ASSERT_TRUE(succeeded(post(id)));
  use(6, 9);
}

CONFORMANCE_TEST(srq, NotLargerThanTheDeviceHas, "ibv_modify_srq.resize-beyond") {
  can_be_resized();
  prepare();
  const uint32_t before = query(srq_).max_wr;
  const auto more = static_cast<uint32_t>(device().attributes().max_srq_wr) + 1;
  if (const int error = resize(more); error != 0) {
    EXPECT_TRUE(refused(error));
    EXPECT_EQ(query(srq_).max_wr, before);
  } else {
    EXPECT_GE(query(srq_).max_wr, more);
  }
}

CONFORMANCE_TEST(srq, DatagramBeginsAfterFortyBytes, "ibv_post_srq_recv.ud-offset") {
  prepare(IBV_QPT_UD);
  senders_[0].fill(2048, 8, 0x77);
  ASSERT_TRUE(succeeded(post(1, 0, 128)));
  send(0);
  EXPECT_EQ(completion(cq_).byte_len, 48u);
  EXPECT_EQ(buffer_[40], 0x77);
}

CONFORMANCE_TEST(srq, LimitRaisesOneEvent, "ibv_modify_srq.limit", "ibv_modify_srq.limit-event",
                 "ibv_modify_srq.limit-once", "ibv_get_async_event.srq-limit", "ibv_get_async_event.zero",
                 "ibv_get_async_event.poll", "ibv_get_async_event.element") {
  prepare();
  fcntl(context()->async_fd, F_SETFL, fcntl(context()->async_fd, F_GETFL) | O_NONBLOCK);
  const auto readable = [&](std::chrono::milliseconds time) {
    pollfd waiting{context()->async_fd, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(scaled(time).count())) == 1;
  };
  for (uint64_t id = 0; id < 6; ++id) ASSERT_TRUE(succeeded(post(id)));
  ibv_srq_attr attr = {};
  attr.srq_limit = 4;
  ABOUT("ibv_modify_srq.limit") ASSERT_SUCCEEDS(ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT));
  ABOUT("ibv_modify_srq.limit") EXPECT_EQ(query(srq_).srq_limit, 4u);
  send(0), completion(cq_);
  send(0), completion(cq_);
  ABOUT("ibv_modify_srq.limit-event")
  EXPECT_FALSE(readable(std::chrono::milliseconds(20))) << "4 are there, the limit is 4";
  ibv_async_event event = {};
  send(0), completion(cq_);
  ABOUT("ibv_modify_srq.limit-event")
  ASSERT_TRUE(readable(std::chrono::seconds(3))) << "expected: an event within 3 s; seen: none";
  ABOUT("ibv_get_async_event.zero") ASSERT_EQ(CALL(ibv_get_async_event(context(), &event)), 0);
  ABOUT("ibv_get_async_event.srq-limit") EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  ABOUT("ibv_get_async_event.element") EXPECT_EQ(event.element.srq, srq_.get());
  ibv_ack_async_event(&event);
  const About about("ibv_modify_srq.limit-once");
  send(0), completion(cq_);
  EXPECT_FALSE(readable(std::chrono::milliseconds(20)));
}

}  // namespace sharing

}  // namespace
}  // namespace conformance::srq_chapter
