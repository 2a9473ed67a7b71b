// SPDX-License-Identifier: BSD-2-Clause
//
// Families (suite/family.h): does what the device claims work at all? Each test does the one thing without
// which nothing of its family works, and looks at nothing else. One after another, before all other tests.
#include <string>

#include "chapters/cq_extended_fixture.h"
#include "chapters/frames_fixture.h"
#include "chapters/mcast_fixture.h"
#include "chapters/mw_fixture.h"
#include "chapters/wr_fixture.h"
#include "support/cm.h"
#include "support/objects.h"
#include "support/pair.h"
#include "support/transitions.h"

namespace conformance::family_chapter {
namespace {

constexpr Traits first = Traits().alone();

void must(bool holds, const std::string& what, Where where = Where::current()) {
  if (!holds) throw Deviation{what, where};
}

// Tests that need a QP in ERR, and no peer, take it there from INIT.
namespace states {
using Fixture = DeviceTest;

CONFORMANCE_TEST_AS(first, family, FromInitToError, "family.init-err") {
  if (context()->device->transport_type == IBV_TRANSPORT_IWARP)
    throw NotTested{"iWARP: the transitions are those of the InfiniBand specification"};
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Qp qp = make_qp(pd, cq);
  bring_to(qp, IBV_QPS_ERR, attributes_for(device(), {}));
  EXPECT_EQ(state_of(qp), IBV_QPS_ERR);
}

}  // namespace states

// A message from the near end to the far one.
class MessageTest : public PairTest {
 protected:
  static PairSpec of(ibv_qp_type type) {
    PairSpec spec;
    spec.both.type = type;
    return spec;
  }
  void message(const PairSpec& spec, uint32_t flags = 0) {
    pair(spec);
    near().fill_pattern(0, length, 7);
    must(far().receive(1024, 256) == 0, "a receive request is refused");
    send(flags);
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().has_pattern(1024 + far().data_offset(), length, 7));
  }
  void send(uint32_t flags = 0) {
    SendRequest request = send_request({{0, length}});
    request.flags |= flags;
    must(near().post(request) == 0, "a send request is refused");
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  }

  static constexpr uint32_t length = 16;
};

namespace messages {
using Fixture = MessageTest;

CONFORMANCE_TEST_AS(first, family, UcDelivers, "family.uc") { message(of(IBV_QPT_UC)); }
CONFORMANCE_TEST_AS(first, family, UdDelivers, "family.ud") { message(of(IBV_QPT_UD)); }

CONFORMANCE_TEST_AS(first, family, SrqReceives, "family.srq") {
  if (device().attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
  PairSpec spec;
  spec.far = spec.both;
  spec.far->srq = true;
  spec.tests_far = true;
  message(spec);
}
CONFORMANCE_TEST_AS(first, family, XrcDelivers, "family.xrc") { message(of(IBV_QPT_XRC_SEND)); }

CONFORMANCE_TEST_AS(first, family, ChannelTells, "family.events") {
  PairSpec spec;
  spec.far = spec.both;
  spec.both.channel = true;
  pair(spec);
  must(near().arm() == 0 && far().receive(1024, 256) == 0,
       "the CQ is not armed, or a receive request is refused");
  send();
  EXPECT_TRUE(near().cq_event().there);
}

CONFORMANCE_TEST_AS(first, family, InlineDataArrive, "family.inline") {
  PairSpec spec;
  spec.both.inline_data = length;
  if (pair(spec).near.facts().inline_data < length) throw NotClaimed{"max_inline_data is 0"};
  message(spec, IBV_SEND_INLINE);
}

CONFORMANCE_TEST_AS(first, family, AtomicsAdd, "family.atomics") {
  if (device().attributes().atomic_cap == IBV_ATOMIC_NONE) throw NotClaimed{"atomic_cap is none"};
  if (!pair().has_atomics()) throw NotTested{"the far end has no atomics"};
  far().set_word(1024, 40);
  SendRequest request = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, {{0, 8}}, far().facts(), 1024);
  request.compare_add = 2;
  must(near().post(request) == 0, "the request is refused");
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(near().word(0), 40u);
  EXPECT_EQ(far().word(1024), 42u);
}

CONFORMANCE_TEST_AS(first, family, PagesComeOnDemand, "family.odp") {
  const ibv_odp_caps& caps = device().extended().odp_caps;
  if ((caps.general_caps & IBV_ODP_SUPPORT) == 0) throw NotClaimed{"odp_caps has no IBV_ODP_SUPPORT"};
  const uint32_t rc = caps.per_transport_caps.rc_odp_caps;
  const bool sends = (rc & IBV_ODP_SUPPORT_SEND) != 0;
  if (!sends && (rc & IBV_ODP_SUPPORT_WRITE) == 0) throw NotClaimed{"rc_odp_caps has neither SEND nor WRITE"};
  End& own = pair().native().end;
  const Mr mr(CALL((ibv_reg_mr)(own.pd, own.buffer.data(), own.buffer.size(),
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND)));
  must(mr, "an MR on demand; seen: null, errno " + errno_text(errno));
  ibv_sge element = {own.buffer.address(), length, mr->lkey};
  ibv_send_wr wr = own.request(sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, &element);
  wr.wr.rdma = {far().address(2048), far().facts().rkey};
  must(far().receive(1024, 256) == 0, "a receive request is refused");
  must(own.post(wr) == 0, "the request is refused");
  EXPECT_EQ(completion(own.cq).status, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST_AS(first, family, DeviceMemoryKeeps, "family.dm") {
  if (device().extended().max_dm_size == 0) throw NotClaimed{"max_dm_size is 0"};
  ibv_alloc_dm_attr attr = {64, 0, 0};
  const Dm dm(CALL(ibv_alloc_dm(context(), &attr)));
  if (!dm && errno == ENOMEM) throw NotTested{"no device memory is free"};  // ibv_alloc_dm(3), NOTES
  must(dm, "device memory; seen: null, errno " + errno_text(errno));
  const Buffer from(64), to(64);
  std::fill_n(from.data(), 64, uint8_t{0xa7});
  EXPECT_SUCCEEDS(ibv_memcpy_to_dm(dm, 0, from.data(), 64));
  EXPECT_SUCCEEDS(ibv_memcpy_from_dm(to.data(), dm, 0, 64));
  EXPECT_TRUE(to.is(0xa7, 0, 64));
}

}  // namespace messages

namespace windows {
using Fixture = WindowTest;

CONFORMANCE_TEST_AS(first, family, WindowIsBoundByItsVerb, "family.mw1") {
  if ((device().attributes().device_cap_flags & IBV_DEVICE_MEM_WINDOW) == 0)
    throw NotClaimed{"device_cap_flags has no memory windows"};
  const Mw mw = window();
  EXPECT_EQ(bind(mw, 0, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, mw->rkey), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST_AS(first, family, WindowIsBoundByARequest, "family.mw2") {
  if ((device().attributes().device_cap_flags &
       (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) == 0)
    throw NotClaimed{"device_cap_flags has no memory windows of type 2"};
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  EXPECT_EQ(bind_by_request(mw, key, 0, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, key), IBV_WC_SUCCESS);
}

}  // namespace windows

namespace extended_cqs {
using Fixture = ExtendedCqTest;

CONFORMANCE_TEST_AS(first, family, ExtendedCqIsPolled, "family.cq-ex") {
  connect();
  send(1);
  must(start() == 0, "expected: a completion; seen: none");
  EXPECT_EQ(cq_->status, IBV_WC_SUCCESS);
  ibv_end_poll(cq_.get());
}

CONFORMANCE_TEST_AS(first, family, CompletionsHaveATime, "family.timestamp") {
  if (device().extended().completion_timestamp_mask == 0) throw NotClaimed{"completion_timestamp_mask is 0"};
  connect(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  send(1);
  must(start() == 0, "expected: a completion; seen: none");
  EXPECT_NE(CALL(ibv_wc_read_completion_ts(cq_.get())), 0u);
  ibv_end_poll(cq_.get());
}

}  // namespace extended_cqs

namespace extended_qps {
using Fixture = ExtendedQpTest;

CONFORMANCE_TEST_AS(first, family, ExtendedQpWrites, "family.qp-ex") {
  connect();
  start();
  write();
  must(complete() == 0, "ibv_wr_complete; expected: 0");
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
}

}  // namespace extended_qps

namespace groups {
using Fixture = MulticastTest;

CONFORMANCE_TEST_AS(first, family, GroupReceives, "family.multicast") {
  const ibv_gid gid = group(9);
  lead_to(far(), gid);
  Endpoint member = one_more(topology().near());
  must(member.attach(gid, lid) == 0, "ibv_attach_mcast; expected: 0");
  receives(member);
  EXPECT_EQ(send_until_received(far(), member).status, IBV_WC_SUCCESS);
  EXPECT_EQ(member.detach(gid, lid), 0);
}

}  // namespace groups

namespace frames {
using Fixture = FramesTest;

// In the midst of a network nobody returns a frame: then the other tests say so, each for itself.
CONFORMANCE_TEST_AS(first, family, RuleIsTaken, "family.flow") {
  need_frames();
  const auto one = receiver();
  const Flow flow = rule(*one, mac(1));
  send(mac(1));
  if (next(*one) == 0) throw NotTested{"no frame of the device comes back to it"};
}

}  // namespace frames

namespace connections {
using Fixture = CmTest;

CONFORMANCE_TEST_AS(first, family, IdsConnect, "family.cm-tcp") { establish(); }
CONFORMANCE_TEST_AS(first, family, ServiceIsFound, "family.cm-udp") {
  EXPECT_NE(look_up().datagram.qp_num, 0u);
}

}  // namespace connections

}  // namespace
}  // namespace conformance::family_chapter
