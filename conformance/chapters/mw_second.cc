// SPDX-License-Identifier: BSD-2-Clause
//
// Memory windows of type 2: their QP, binding again, keys; what IBV_WR_SEND_WITH_INV must not invalidate.
#include <infiniband/verbs.h>

#include "chapters/mw_fixture.h"

namespace conformance::mw_second_chapter {
namespace {

class Fixture : public WindowTest {
 protected:
  // The next bind names the window by the key that it has. Of type 1 ibv_bind_mw(3) says that the field is
  // updated; of type 2 no page does, and drivers leave it to the program.
  ibv_wc_status bind_with(ibv_mw* mw, uint32_t rkey, size_t offset) {
    const ibv_wc_status status = bind_by_request(mw, rkey, offset, 64);
    if (status == IBV_WC_SUCCESS) mw->rkey = rkey;
    return status;
  }
  // Whether the request is taken and carried out is asked by ibv_post_send.rc.local-inv.
  void invalidate_locally(uint32_t rkey) {
    ibv_send_wr wr = binder().request(IBV_WR_LOCAL_INV, nullptr);
    wr.invalidate_rkey = rkey;
    if (const int error = binder().post(wr); error != 0)
      throw NotTested{"IBV_WR_LOCAL_INV is refused with " + errno_text(error)};
    const ibv_wc wc = completion(binder().cq);
    if (wc.status != IBV_WC_SUCCESS) throw NotTested{"IBV_WR_LOCAL_INV ends with " + wc_text(wc)};
  }

  // A second connection between the buffers of the two ends.
  Pair& second() {
    if (second_) return *second_;
    PairSpec spec;
    spec.both.shares = pair(bindable()).near.facts().end;
    spec.far.emplace().shares = pair(bindable()).far.facts().end;
    return second_.emplace(topology(), spec);
  }
  // Through it.
  ibv_wc_status second_writes(uint32_t rkey, size_t offset) {
    SendRequest request = send_request({{0, 1}}, 1, IBV_WR_RDMA_WRITE);
    request.remote = binder().buffer.address(offset);
    request.rkey = rkey;
    EXPECT_EQ(second().far.post(request), 0);
    return second().far.completion().status;
  }
  // A message that asks to invalidate the key must not be received with success.
  void expect_no_invalidation(uint32_t rkey) {
    ASSERT_TRUE(succeeded(binder().post_receive(1024, 64)));
    SendRequest request = send_request({{0, 8}}, 1, IBV_WR_SEND_WITH_INV);
    request.rkey = rkey;
    const int error = user().post(request);
    if (is_refusal(error) && !topology().is_loopback())
      throw NotTested{"the far end refuses IBV_WR_SEND_WITH_INV with " + errno_text(error)};
    if (is_refusal(error)) throw NotClaimed{"IBV_WR_SEND_WITH_INV refused with " + errno_text(error)};
    user().poll(1, scaled(std::chrono::milliseconds(200)));  // its status is not specified
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::milliseconds(200));
    ibv_wc wc = {};
    while (ibv_poll_cq(binder().cq, 1, &wc) == 0)
      if (std::chrono::steady_clock::now() > deadline) return;
    trace("ibv_poll_cq: " + wc_text(wc));
    EXPECT_NE(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
  }

 private:
  std::optional<Pair> second_;
};

CONFORMANCE_TEST(mw, TypeTwoServesItsQp, "ibv_alloc_mw.type2-qp") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(bind_with(mw, rkey, 0), IBV_WC_SUCCESS);
  user().fill(0, 1, 0x77);
  ASSERT_EQ(write(0, rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(second_writes(rkey, 1), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(binder().buffer[1], Buffer::untouched);
}

CONFORMANCE_TEST(mw, TypeTwoIsInvalidatedFirst, "ibv_alloc_mw.type2-rebind") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(bind_with(mw, rkey, 0), IBV_WC_SUCCESS);
  EXPECT_NE(bind_with(mw, ibv_inc_rkey(rkey), 64), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mw, KeyBeforeIsOfNoUse, "ibv_alloc_mw.type2-old-key") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t before = ibv_inc_rkey(mw->rkey), rkey = ibv_inc_rkey(before);
  ASSERT_EQ(bind_with(mw, before, 0), IBV_WC_SUCCESS);
  ASSERT_EQ(write(0, before), IBV_WC_SUCCESS);
  invalidate_locally(before);
  ASSERT_EQ(bind_with(mw, rkey, 0), IBV_WC_SUCCESS);
  user().fill(0, 1, 0x77);
  ASSERT_EQ(write(0, rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(binder().buffer[0], 0x77);
  EXPECT_EQ(write(1, before), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(binder().buffer[1], Buffer::untouched);
}

CONFORMANCE_TEST(mw, KeyIsUsedAgain, "ibv_alloc_mw.type2-same-key") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  user().fill(0, 1, 0x77);
  for (const size_t offset : {size_t{0}, size_t{128}}) {
    ASSERT_EQ(bind_with(mw, rkey, offset), IBV_WC_SUCCESS) << "the window at " << offset;
    ASSERT_EQ(write(offset, rkey), IBV_WC_SUCCESS) << "the window at " << offset;
    EXPECT_EQ(binder().buffer[offset], 0x77);
    invalidate_locally(rkey);
  }
}

CONFORMANCE_TEST(mw, NothingToInvalidate, "ibv_post_send.inv.unknown") {
  uint32_t rkey = 0;
  {
    const Mr gone = make_mr(binder().pd, binder().buffer, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC);
    rkey = gone->rkey;
  }
  expect_no_invalidation(rkey);
}

CONFORMANCE_TEST(mw, WindowOfAnotherQpStays, "ibv_post_send.inv.other-qp") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  const End& other = topology().host().at(second().near.facts().end).end;
  ibv_send_wr wr = other.request(IBV_WR_BIND_MW, nullptr);
  wr.bind_mw = {mw, rkey, binding(0, 64).bind_info};
  ASSERT_TRUE(succeeded(other.post(wr)));
  ASSERT_EQ(completion(other.cq).status, IBV_WC_SUCCESS);
  expect_no_invalidation(rkey);
  EXPECT_EQ(second_writes(rkey, 0), IBV_WC_SUCCESS) << "the window is no longer bound";
}

CONFORMANCE_TEST(mw, WindowOfTypeOneStays, "ibv_post_send.inv.type1") {
  const Mw mw = window(IBV_MW_TYPE_1);
  ASSERT_EQ(bind(mw, 0, 64), IBV_WC_SUCCESS);
  expect_no_invalidation(mw->rkey);
  EXPECT_EQ(second_writes(mw->rkey, 0), IBV_WC_SUCCESS) << "the window is no longer bound";
}

CONFORMANCE_TEST(mw, RegionStays, "ibv_post_send.inv.region") {
  const Mr mr = make_mr(binder().pd, binder().buffer, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC);
  expect_no_invalidation(mr->rkey);
  EXPECT_EQ(second_writes(mr->rkey, 0), IBV_WC_SUCCESS) << "the region is no longer valid";
}

}  // namespace
}  // namespace conformance::mw_second_chapter
