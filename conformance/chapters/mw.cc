// SPDX-License-Identifier: BSD-2-Clause
//
// Memory windows, of both types.
#include "chapters/mw_fixture.h"

namespace conformance::mw_chapter {
namespace {

using Fixture = WindowTest;

CONFORMANCE_TEST(mw, ComesAndGoes, "ibv_alloc_mw.pointer", "ibv_dealloc_mw.zero", "ibv_alloc_mw.as-claimed") {
  Mw mw = window();  // claimed and null: a deviation from each of them
  ABOUT("ibv_alloc_mw.pointer") {
    EXPECT_EQ(mw->pd, binder().pd.get());
    EXPECT_EQ(mw->context, context());
    EXPECT_EQ(mw->type, IBV_MW_TYPE_1);
  }
  ABOUT("ibv_dealloc_mw.zero") EXPECT_SUCCEEDS(mw.destroy());
}

CONFORMANCE_TEST(mw, UnclaimedTypesAreRefused, "ibv_alloc_mw.as-claimed") {
  const unsigned flags = device().attributes().device_cap_flags;
  const bool one = (flags & IBV_DEVICE_MEM_WINDOW) != 0;
  const bool two = (flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  if (one && two) throw NotClaimed{"both types are claimed"};
  const Pd pd = make_pd(device());
  const Mw mw(CALL(ibv_alloc_mw(pd, one ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1)));
  if (mw != nullptr) throw NotTested{"one that is not claimed is allocated, which no text forbids"};
}

CONFORMANCE_TEST(mw, UnboundGivesNoAccess, "ibv_alloc_mw.unbound") {
  const Mw mw = window();
  EXPECT_EQ(write(0, mw->rkey), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mw, BoundGivesAccess, "ibv_bind_mw.rkey", "ibv_bind_mw.access", "ibv_bind_mw.signaled") {
  const Mw mw = window();
  const uint32_t before = mw->rkey;
  ibv_mw_bind how = binding(100, 50);
  ASSERT_SUCCEEDS(ibv_bind_mw(binder().qp, mw, &how));
  ABOUT("ibv_bind_mw.signaled") {
    const ibv_wc wc = completion(binder().cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(wc.wr_id, 9u);
  }
  ABOUT("ibv_bind_mw.rkey") EXPECT_NE(mw->rkey, before);
  const About about("ibv_bind_mw.access");
  user().fill(0, 1, 0x77);
  EXPECT_EQ(write(100, mw->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(binder().buffer[100], 0x77);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, binder().buffer.address(149), mw->rkey), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, EndsWhereItWasBound, "ibv_bind_mw.bounds") {
  for (const auto& [offset, length] : {std::pair<size_t, uint32_t>{99, 1}, {150, 1}, {149, 2}, {100, 51}}) {
    new_pair(bindable());
    const Mw mw = window();
    ASSERT_EQ(bind(mw, 100, 50), IBV_WC_SUCCESS);
    EXPECT_EQ(write(offset, mw->rkey, length), IBV_WC_REM_ACCESS_ERR) << length << " bytes at " << offset;
    EXPECT_TRUE(binder().buffer.is(Buffer::untouched, 0, 256));
  }
}

CONFORMANCE_TEST(mw, RightsAreTheBindings, "ibv_bind_mw.rights") {
  const Mw mw = window();
  ASSERT_EQ(bind(mw, 0, 64, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, binder().buffer.address(), mw->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, mw->rkey), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mw, ZeroLengthInvalidates, "ibv_bind_mw.zero-length") {
  const Mw mw = window();
  ASSERT_EQ(bind(mw, 0, 64), IBV_WC_SUCCESS);
  const uint32_t rkey = mw->rkey;
  ASSERT_EQ(bind(mw, 0, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, rkey), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mw, RebindChangesTheKey, "ibv_bind_mw.rebind") {
  const Mw mw = window();
  ASSERT_EQ(bind(mw, 0, 64), IBV_WC_SUCCESS);
  const uint32_t old = mw->rkey;
  ASSERT_EQ(bind(mw, 0, 64), IBV_WC_SUCCESS);
  EXPECT_NE(mw->rkey, old);
  EXPECT_EQ(write(0, mw->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, old), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mw, DeallocUnbinds, "ibv_dealloc_mw.unbinds", "ibv_dereg_mr.window-bound") {
  const Buffer buffer(64);
  Mr mr;
  Mw mw = window();
  mr = make_mr(binder().pd, buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ibv_mw_bind how = binding(0, 0, read_write, mr);
  how.bind_info.addr = buffer.address();
  how.bind_info.length = 64;
  ASSERT_EQ(bind(mw, how), IBV_WC_SUCCESS);
  const uint32_t rkey = mw->rkey;
  {
    const About about("ibv_dereg_mr.window-bound");
    ASSERT_TRUE(refused(CALL(mr.destroy())));
  }
  const About about("ibv_dealloc_mw.unbinds");
  EXPECT_SUCCEEDS(mw.destroy());
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, buffer.address(), rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_SUCCEEDS(mr.destroy());
}

CONFORMANCE_TEST(mw, RegionMustAllowIt, "ibv_bind_mw.needs-mw-bind", "ibv_bind_mw.write-needs-local") {
  const Buffer buffer(64);
  const struct {
    ClauseId clause;
    int access;
  } table[] = {{"ibv_bind_mw.needs-mw-bind", IBV_ACCESS_LOCAL_WRITE},
               {"ibv_bind_mw.write-needs-local", IBV_ACCESS_MW_BIND}};
  for (const auto& [clause, access] : table) {
    const About about(clause);
    new_pair(bindable());
    const Mr mr = make_mr(binder().pd, buffer, access);
    const Mw mw = window();
    ibv_mw_bind how = binding(0, 64, IBV_ACCESS_REMOTE_WRITE, mr);
    how.bind_info.addr = buffer.address();
    EXPECT_NE(bind(mw, how), IBV_WC_SUCCESS) << "region of access " << access;
  }
}

CONFORMANCE_TEST(mw, WindowMustLieInItsRegion, "ibv_bind_mw.outside-mr") {
  const Mw mw = window();
  EXPECT_NE(bind(mw, binder().buffer.size() - 10, 11), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, ZeroBasedIsAddressedByOffset, "ibv_bind_mw.zero-based") {
  const Mw one = window();
  uint32_t rkey = 0;
  ibv_wc_status status = bind(one, 100, 50, read_write | IBV_ACCESS_ZERO_BASED);
  if (status == IBV_WC_SUCCESS) rkey = one->rkey;
  // Many adapters have windows of type 2 only that begin at zero. A bind that failed has ended the QP.
  constexpr unsigned second = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  const bool ended = status != IBV_WC_SUCCESS && status != IBV_WC_MW_BIND_ERR;
  Mw two;
  if (rkey == 0 && !ended && (device().attributes().device_cap_flags & second) != 0) {
    two = window(IBV_MW_TYPE_2);
    rkey = ibv_inc_rkey(two->rkey);
    status = bind_by_request(two, rkey, 100, 50, read_write | IBV_ACCESS_ZERO_BASED);
  }
  if (status != IBV_WC_SUCCESS) throw NotClaimed{"a zero-based bind is refused"};
  user().fill(0, 1, 0x77);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, 3, rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(binder().buffer[103], 0x77);
}

CONFORMANCE_TEST(mw, FenceIsTaken, "ibv_bind_mw.fence") {
  const Mw mw = window();
  ibv_mw_bind how = binding(0, 64);
  how.send_flags |= IBV_SEND_FENCE;
  EXPECT_EQ(bind(mw, how), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, DatagramsBindNothing, "ibv_bind_mw.qp-type") {
  PairSpec spec = bindable();
  spec.both.type = IBV_QPT_UD;
  pair(spec);
  const Mw mw = window();
  EXPECT_NE(bind(mw, 0, 64), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, KeyMayFollowOnTheSameQp, "ibv_bind_mw.ordered") {
  const Mw mw = window();
  ASSERT_EQ(user().receive(512, 64), 0);
  ibv_mw_bind how = binding(0, 64);
  ASSERT_SUCCEEDS(ibv_bind_mw(binder().qp, mw, &how));
  ibv_sge element = binder().sge(1024, 8);
  ibv_send_wr wr = binder().request(IBV_WR_SEND, &element);
  ASSERT_TRUE(succeeded(binder().post(wr)));
  ASSERT_EQ(user().received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, mw->rkey), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, TypeTwoIsNotForBindMw, "ibv_bind_mw.type2-refused") {
  const Mw mw = window(IBV_MW_TYPE_2);
  EXPECT_NE(bind(mw, 0, 64), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, TypeTwoIsBoundByARequest, "ibv_alloc_mw.type2-bind", "ibv_post_send.rc.bind-mw",
                 "ibv_post_send.rc.local-inv", "ibv_alloc_mw.type2-local-inv") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  ABOUT("ibv_post_send.rc.bind-mw") ASSERT_EQ(bind_by_request(mw, rkey, 0, 64), IBV_WC_SUCCESS);
  user().fill(0, 1, 0x77);
  ABOUT("ibv_alloc_mw.type2-bind") {
    ASSERT_EQ(write(0, rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(binder().buffer[0], 0x77);
  }
  ABOUT("ibv_post_send.rc.local-inv") {
    ibv_send_wr wr = binder().request(IBV_WR_LOCAL_INV, nullptr);
    wr.invalidate_rkey = rkey;
    ASSERT_TRUE(succeeded(binder().post(wr)));
    ASSERT_EQ(completion(binder().cq).status, IBV_WC_SUCCESS);
  }
  ABOUT("ibv_alloc_mw.type2-local-inv") EXPECT_EQ(write(1, rkey), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mw, SendWithInvalidateEndsIt, "ibv_alloc_mw.type2-send-inv", "ibv_post_send.rc.send-inv") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(bind_by_request(mw, rkey, 0, 64), IBV_WC_SUCCESS);
  ASSERT_TRUE(succeeded(binder().post_receive(1024, 64)));
  SendRequest request = send_request({{0, 8}}, 1, IBV_WR_SEND_WITH_INV);
  request.rkey = rkey;
  ASSERT_EQ(user().post(request), 0);
  ASSERT_EQ(user().completion().status, IBV_WC_SUCCESS);
  const ibv_wc received = completion(binder().cq);
  ABOUT("ibv_post_send.rc.send-inv") {
    EXPECT_NE(received.wc_flags & IBV_WC_WITH_INV, 0u);
    EXPECT_EQ(received.invalidated_rkey, rkey);
  }
  ABOUT("ibv_alloc_mw.type2-send-inv") EXPECT_EQ(write(0, rkey), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(mw, IncrementKeepsTheIndex, "ibv_inc_rkey.tag", "ibv_inc_rkey.wraps") {
  ABOUT("ibv_inc_rkey.tag") EXPECT_EQ(CALL(ibv_inc_rkey(0x12345600)), 0x12345601u);
  ABOUT("ibv_inc_rkey.wraps") EXPECT_EQ(CALL(ibv_inc_rkey(0x123456ff)), 0x12345600u);
}

}  // namespace
}  // namespace conformance::mw_chapter
