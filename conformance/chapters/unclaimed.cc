// SPDX-License-Identifier: BSD-2-Clause
//
// What a device does not claim, it refuses: each test is for a device without the capability. The pages of
// the creating functions promise null, and no errno value.
#include <fcntl.h>

#include "support/pair.h"

namespace conformance::unclaimed_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  // The test is for devices without it.
  static void only_without(bool is_claimed, const char* what) {
    if (is_claimed) throw NotClaimed{std::string(what) + " is claimed: the test is for devices without it"};
  }
  const ibv_device_attr& claims() { return device().attributes(); }
  static ibv_wq_init_attr work_queue(ibv_pd* pd, ibv_cq* cq) {
    ibv_wq_init_attr attr = {};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 4;
    attr.max_sge = 1;
    attr.pd = pd;
    attr.cq = cq;
    return attr;
  }
  bool has(unsigned flag) { return (claims().device_cap_flags & flag) != 0; }
  // Queues and tables may be claimed on Ethernet only, and made on InfiniBand, too.
  static constexpr const char* made_without_claim = "none is claimed, and one is made";
};

CONFORMANCE_TEST(more, NoSrqWhereNoneIsClaimed, "ibv_create_srq.as-claimed") {
  only_without(claims().max_srq != 0, "max_srq");
  const Pd pd = make_pd(device());
  ibv_srq_init_attr attr = {nullptr, {1, 1, 0}};
  const Srq srq(CALL(ibv_create_srq(pd, &attr)));
  EXPECT_EQ(srq, nullptr);
}

CONFORMANCE_TEST(more, NoTagsWhereNoneAreClaimed, "ibv_create_srq_ex.tm-as-claimed") {
  only_without(device().extended().tm_caps.max_num_tags != 0, "tag matching");
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  ibv_srq_init_attr_ex attr = {};
  attr.attr = {4, 1, 0};
  attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  attr.srq_type = IBV_SRQT_TM;
  attr.pd = pd;
  attr.cq = cq;
  attr.tm_cap = {4, 4};
  const Srq srq(CALL(ibv_create_srq_ex(context(), &attr)));
  EXPECT_EQ(srq, nullptr);
}

CONFORMANCE_TEST(more, NoXrcWhereNoneIsClaimed, "ibv_open_xrcd.as-claimed") {
  only_without(has(IBV_DEVICE_XRC), "XRC");
  ibv_xrcd_init_attr attr = {};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = -1;
  attr.oflags = O_CREAT;
  const Xrcd domain(CALL(ibv_open_xrcd(context(), &attr)));
  EXPECT_EQ(domain, nullptr);
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  ibv_qp_init_attr_ex init = {};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = pd;
  init.send_cq = cq;
  init.cap = {4, 0, 1, 0, 0};
  const Qp qp(CALL(ibv_create_qp_ex(context(), &init)));
  EXPECT_EQ(qp, nullptr);
}

CONFORMANCE_TEST(more, NoGroupWhereNoneIsClaimed, "ibv_attach_mcast.as-claimed") {
  only_without(claims().max_mcast_grp != 0, "max_mcast_grp");
  PairSpec spec;
  spec.both.type = IBV_QPT_UD;
  pair(spec);
  ibv_gid group = {};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  group.raw[15] = 0x5a;
  EXPECT_REFUSED(ibv_attach_mcast(pair().native().end.qp, &group, 0xc05a));
}

CONFORMANCE_TEST(more, NoDeviceMemoryWhereNoneIsClaimed, "ibv_alloc_dm.as-claimed") {
  only_without(device().extended().max_dm_size != 0, "max_dm_size");
  ibv_alloc_dm_attr attr = {64, 0, 0};
  const Dm memory(CALL(ibv_alloc_dm(context(), &attr)));
  EXPECT_EQ(memory, nullptr);
}

CONFORMANCE_TEST(more, NoAtomicsWhereNoneAreClaimed, "ibv_post_send.atomics-as-claimed") {
  only_without(claims().atomic_cap != IBV_ATOMIC_NONE, "atomic_cap");
  for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    new_pair();
    SendRequest request = remote_request(opcode, {{0, 8}}, far().facts(), 1024);
    request.compare_add = 0x5a5a5a5a5a5a5a5a;
    if (near().post(request) == 0) {
      EXPECT_NE(near().completion().status, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(far().untouched(0, 4096));
  }
}

CONFORMANCE_TEST(more, NoWorkQueueWhereNoneIsClaimed, "ibv_create_wq.as-claimed") {
  only_without(device().extended().max_wq_type_rq != 0, "max_wq_type_rq");
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  ibv_wq_init_attr attr = work_queue(pd, cq);
  ibv_wq* const queue = CALL(ibv_create_wq(context(), &attr));
  if (queue == nullptr) return;
  ibv_destroy_wq(queue);
  throw NotClaimed{made_without_claim};
}

// A table is made of work queues: where no queue is made, no table is.
CONFORMANCE_TEST(more, NoTableOfQueuesWhereNoneIsClaimed, "ibv_create_rwq_ind_table.as-claimed") {
  only_without(device().extended().rss_caps.max_rwq_indirection_tables != 0, "RSS");
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  ibv_wq_init_attr wanted = work_queue(pd, cq);
  ibv_wq* queue = CALL(ibv_create_wq(context(), &wanted));
  if (queue == nullptr) return;
  ibv_rwq_ind_table_init_attr attr = {0, &queue, 0};
  ibv_rwq_ind_table* const table = CALL(ibv_create_rwq_ind_table(context(), &attr));
  if (table != nullptr) ibv_destroy_rwq_ind_table(table);
  ibv_destroy_wq(queue);
  if (table != nullptr) throw NotClaimed{made_without_claim};
}

CONFORMANCE_TEST(more, CountersAreAnswered, "ibv_create_counters.answer") {
  ibv_counters_init_attr attr = {};
  ibv_counters* const counters = CALL(ibv_create_counters(context(), &attr));
  if (counters == nullptr) {
    EXPECT_TRUE(refused(counters, {EOPNOTSUPP, ENOSYS, ENOMEM, EINVAL}));
  } else {
    EXPECT_SUCCEEDS(ibv_destroy_counters(counters));
  }
}

}  // namespace
}  // namespace conformance::unclaimed_chapter
