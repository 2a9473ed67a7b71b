// SPDX-License-Identifier: BSD-2-Clause
//
// Capabilities that only some adapters have: flow rules, work queues, counters, tag lists; and device memory
// by its handle. A device that does not claim one of them refuses it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::offload_chapter {
namespace {

template <typename Object, int (*destroy)(Object*)>
struct Ended {
  void operator()(Object* object) const { destroy(object); }
};
int end_flow(ibv_flow* flow) { return ibv_destroy_flow(flow); }
int end_action(ibv_flow_action* action) { return ibv_destroy_flow_action(action); }
int end_wq(ibv_wq* wq) { return ibv_destroy_wq(wq); }
int end_table(ibv_rwq_ind_table* table) { return ibv_destroy_rwq_ind_table(table); }
int end_counters(ibv_counters* counters) { return ibv_destroy_counters(counters); }
int end_context(ibv_context* context) { return ibv_close_device(context); }
using Flow = std::unique_ptr<ibv_flow, Ended<ibv_flow, end_flow>>;
using Action = std::unique_ptr<ibv_flow_action, Ended<ibv_flow_action, end_action>>;
using Wq = std::unique_ptr<ibv_wq, Ended<ibv_wq, end_wq>>;
using Table = std::unique_ptr<ibv_rwq_ind_table, Ended<ibv_rwq_ind_table, end_table>>;
using Counters = std::unique_ptr<ibv_counters, Ended<ibv_counters, end_counters>>;
using Context = std::unique_ptr<ibv_context, Ended<ibv_context, end_context>>;

// A rule for a destination that no machine has: it does not touch the traffic of others. Its parts follow one
// another without gaps, as in the example of ibv_create_flow(3).
class Rule {
 public:
  explicit Rule(uint8_t port, ibv_counters* counters = nullptr, bool holds_its_parts = true) {
    const uint8_t destination[] = {0x02, 0x5e, 0xc0, 0x4f, 0x0e, 0x01};
    ibv_flow_spec_eth ethernet = {};
    ethernet.type = IBV_FLOW_SPEC_ETH;
    ethernet.size = sizeof ethernet;
    memcpy(ethernet.val.dst_mac, destination, sizeof destination);
    memset(ethernet.mask.dst_mac, 0xff, sizeof destination);
    ibv_flow_spec_counter_action count = {};
    count.type = IBV_FLOW_SPEC_ACTION_COUNT;
    count.size = sizeof count;
    count.counters = counters;
    add(ethernet);
    if (counters != nullptr) add(count);
    ibv_flow_attr attr = {};
    attr.type = IBV_FLOW_ATTR_NORMAL;
    attr.size = static_cast<uint16_t>(holds_its_parts ? end_ : sizeof attr);
    attr.num_of_specs = counters != nullptr ? 2 : 1;
    attr.port = port;
    memcpy(bytes_, &attr, sizeof attr);
  }
  ibv_flow_attr* get() { return reinterpret_cast<ibv_flow_attr*>(bytes_); }

 private:
  template <typename Part>
  void add(const Part& part) {
    memcpy(bytes_ + end_, &part, sizeof part);
    end_ += sizeof part;
  }

  alignas(8) uint8_t bytes_[128] = {};
  size_t end_ = sizeof(ibv_flow_attr);
};

class Fixture : public DeviceTest {
 protected:
  bool claims_flows() {
    return (device().attributes().device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING) != 0;
  }

  // Of a type that takes rules. Raw packets need Ethernet, and a right that a user may lack.
  Qp steered() {
    QpSpec spec;
    spec.type = IBV_QPT_RAW_PACKET;
    ibv_qp_init_attr attr = init_attributes(within_limits(context(), spec), cq(), cq());
    Qp qp;
    if (device().is_ethernet()) qp = Qp(CALL(ibv_create_qp(pd(), &attr)));
    if (qp == nullptr) {
      spec.type = IBV_QPT_UD;
      qp = make_qp(pd(), cq(), spec);
    }
    return qp;
  }

  Flow flow_of(ibv_qp* qp, Rule& rule) {
    Flow flow(CALL(ibv_create_flow(qp, rule.get())));
    if (!flow && errno == EPERM) throw NotTested{"rules for flows need a right that this user does not have"};
    // A device may take rules on one of the two types only.
    if (!flow && qp->qp_type == IBV_QPT_UD)
      throw NotTested{"raw packet QPs are refused, and so are rules on UD QPs: " + errno_text(errno)};
    return flow;
  }

  void need_flows() {
    // Whether a rule is refused then is asked by UnclaimedFlowsAreRefused.
    if (!claims_flows()) throw NotClaimed{"IBV_DEVICE_MANAGED_FLOW_STEERING is not set"};
  }

  ibv_wq_init_attr work_queue() {
    ibv_wq_init_attr attr = {};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 5;
    attr.max_sge = 1;
    attr.pd = pd();
    attr.cq = cq();
    return attr;
  }

  Wq make_wq() {
    ibv_wq_init_attr attr = work_queue();
    // What is made without that claim is a matter of "more", NoWorkQueueWhereNoneIsClaimed.
    if (device().extended().max_wq_type_rq == 0) throw NotClaimed{"max_wq_type_rq is 0"};
    Wq wq(CALL(ibv_create_wq(context(), &attr)));
    if (!wq) throw Deviation{"expected: a work queue; seen: null, " + errno_text(errno), Where::current()};
    return wq;
  }

  static int modify(ibv_wq* wq, ibv_wq_state to, uint32_t more = 0, ibv_wq_state from = IBV_WQS_RESET) {
    ibv_wq_attr attr = {};
    attr.attr_mask = IBV_WQ_ATTR_STATE | more;
    attr.wq_state = to;
    attr.curr_wq_state = from;
    return CALL(ibv_modify_wq(wq, &attr));
  }

  Counters make_counters() {
    ibv_counters_init_attr attr = {};
    Counters counters(CALL(ibv_create_counters(context(), &attr)));
    if (counters) return counters;
    const int error = errno;
    if (error == EOPNOTSUPP || error == ENOSYS)
      throw NotClaimed{"ibv_create_counters refused with " + errno_text(error)};
    throw Deviation{"expected: counters, EOPNOTSUPP or ENOSYS; seen: " + errno_text(error), Where::current()};
  }

  // At index 0.
  static int count_packets(ibv_counters* counters, int what = IBV_COUNTER_PACKETS) {
    ibv_counter_attach_attr attr = {};
    attr.counter_desc = static_cast<ibv_counter_description>(what);
    return CALL(ibv_attach_counters_point_flow(counters, &attr, nullptr));
  }

  Action make_action() {
    ibv_flow_action_esp esp = {};
    esp.spi = 1;
    esp.flags = IBV_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO | IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT;
    ibv_flow_action_esp_keymat_aes_gcm key = {};
    key.iv_algo = IBV_FLOW_ACTION_IV_ALGO_SEQ;
    key.key_len = 16;
    key.icv_len = 16;
    ibv_flow_action_esp_attr attr = {};
    attr.esp_attr = &esp;
    attr.keymat_proto = IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM;
    attr.keymat_len = sizeof key;
    attr.keymat_ptr = &key;
    attr.comp_mask = IBV_FLOW_ACTION_ESP_MASK_ESN;  // one without may not get one later
    attr.esn = 1;
    Action action(CALL(ibv_create_flow_action_esp(context(), &attr)));
    if (!action) {
      const int error = errno;
      ABOUT("ibv_create_flow_action_esp.pointer") EXPECT_GT(error, 0) << "null, and errno says why";
      throw NotClaimed{"ibv_create_flow_action_esp refused with " + errno_text(error)};
    }
    return action;
  }

  ibv_pd* pd() {
    if (pd_ == nullptr) pd_ = make_pd(device());
    return pd_;
  }
  ibv_cq* cq() {
    if (cq_ == nullptr) cq_ = make_cq(device());
    return cq_;
  }

 private:
  Pd pd_;
  Cq cq_;
};

CONFORMANCE_TEST(offload, RulesForFlowsComeAndGo, "ibv_create_flow.pointer", "ibv_create_flow.as-claimed",
                 "ibv_destroy_flow.zero") {
  need_flows();
  const Qp qp = steered();
  Rule rule(device().port_number());
  Flow flow = flow_of(qp, rule);
  ASSERT_NE(flow, nullptr) << errno_text(errno);
  const About about("ibv_destroy_flow.zero");
  EXPECT_SUCCEEDS(ibv_destroy_flow(flow.release()));
}

CONFORMANCE_TEST(offload, UnclaimedFlowsAreRefused, "ibv_create_flow.as-claimed") {
  if (claims_flows()) throw NotClaimed{"flow steering is claimed"};
  const Qp qp = steered();
  Rule rule(device().port_number());
  EXPECT_TRUE(refused_with_errno(CALL(ibv_create_flow(qp, rule.get()))));
}

CONFORMANCE_TEST(offload, ConnectedQpsTakeNoRule, "ibv_create_flow.qp-type") {
  need_flows();
  const Qp qp = make_qp(pd(), cq());
  Rule rule(device().port_number());
  EXPECT_EQ(flow_of(qp, rule), nullptr);
}

CONFORMANCE_TEST(offload, RulesHoldTheirSpecifications, "ibv_create_flow.size") {
  need_flows();
  const Qp qp = steered();
  Rule rule(device().port_number(), nullptr, false);
  const Flow flow = flow_of(qp, rule);
  observe("ibv_create_flow.size", flow ? "the size is not read" : "refused with " + errno_text(errno));
}

CONFORMANCE_TEST(offload, ActionsComeAndGo, "ibv_create_flow_action_esp.pointer",
                 "ibv_modify_flow_action_esp.zero", "ibv_destroy_flow_action.zero") {
  Action action = make_action();
  {
    const About about("ibv_modify_flow_action_esp.zero");
    ibv_flow_action_esp_attr attr = {};
    attr.comp_mask = IBV_FLOW_ACTION_ESP_MASK_ESN;
    attr.esn = 7;
    EXPECT_SUCCEEDS(ibv_modify_flow_action_esp(action.get(), &attr));
  }
  const About about("ibv_destroy_flow_action.zero");
  EXPECT_SUCCEEDS(ibv_destroy_flow_action(action.release()));
}

CONFORMANCE_TEST(offload, WorkQueuesHaveWhatWasAsked, "ibv_create_wq.at-least", "ibv_create_wq.as-claimed",
                 "ibv_destroy_wq.zero") {
  make_wq();
  ibv_wq_init_attr attr = work_queue();
  Wq wq(CALL(ibv_create_wq(context(), &attr)));
  ASSERT_NE(wq, nullptr) << errno_text(errno);
  EXPECT_GE(attr.max_wr, 5u);
  EXPECT_GE(attr.max_sge, 1u);
  const About about("ibv_destroy_wq.zero");
  EXPECT_SUCCEEDS(ibv_destroy_wq(wq.release()));
}

CONFORMANCE_TEST(offload, WorkQueuesChangeTheirState, "ibv_modify_wq.states", "ibv_modify_wq.current-state") {
  const Wq wq = make_wq();
  ASSERT_TRUE(succeeded(modify(wq.get(), IBV_WQS_RDY)));
  {
    const About about("ibv_modify_wq.current-state");
    EXPECT_TRUE(refused(modify(wq.get(), IBV_WQS_ERR, IBV_WQ_ATTR_CURR_STATE, IBV_WQS_RESET)));
  }
  EXPECT_TRUE(succeeded(modify(wq.get(), IBV_WQS_ERR, IBV_WQ_ATTR_CURR_STATE, IBV_WQS_RDY)));
  EXPECT_TRUE(succeeded(modify(wq.get(), IBV_WQS_RESET)));
}

CONFORMANCE_TEST(offload, TablesOfWorkQueues, "ibv_create_rwq_ind_table.pointer",
                 "ibv_create_rwq_ind_table.as-claimed", "ibv_destroy_rwq_ind_table.zero") {
  const Wq first = make_wq(), second = make_wq();
  if (device().extended().rss_caps.max_rwq_indirection_tables == 0)
    throw NotClaimed{"max_rwq_indirection_tables is 0"};
  std::array<ibv_wq*, 2> list = {first.get(), second.get()};
  ibv_rwq_ind_table_init_attr attr = {};
  attr.log_ind_tbl_size = 1;
  attr.ind_tbl = list.data();
  Table table(CALL(ibv_create_rwq_ind_table(context(), &attr)));
  if (!table && errno == EINVAL) {  // a device may want queues whose numbers follow one another
    attr.log_ind_tbl_size = 0;
    table.reset(CALL(ibv_create_rwq_ind_table(context(), &attr)));
  }
  ASSERT_NE(table, nullptr) << errno_text(errno);
  const About about("ibv_destroy_rwq_ind_table.zero");
  EXPECT_SUCCEEDS(ibv_destroy_rwq_ind_table(table.release()));
  EXPECT_TRUE(succeeded(modify(first.get(), IBV_WQS_RDY)));
}

CONFORMANCE_TEST(offload, CountersComeAndGo, "ibv_create_counters.pointer", "ibv_destroy_counters.zero") {
  Counters counters = make_counters();
  const About about("ibv_destroy_counters.zero");
  EXPECT_SUCCEEDS(ibv_destroy_counters(counters.release()));
}

CONFORMANCE_TEST(offload, CounterPointsAreChecked, "ibv_attach_counters_point_flow.static",
                 "ibv_attach_counters_point_flow.unknown") {
  const Counters counters = make_counters();
  const int error = count_packets(counters.get());
  EXPECT_TRUE(error == 0 || error == ENOTSUP) << errno_text(error);
  const About about("ibv_attach_counters_point_flow.unknown");
  EXPECT_TRUE(refused(count_packets(counters.get(), 9999)));
}

CONFORMANCE_TEST(offload, CountersBeginAtZero, "ibv_read_counters.cleared") {
  const Counters counters = make_counters();
  need_flows();
  if (count_packets(counters.get()) == ENOTSUP) throw NotClaimed{"packets are not counted"};
  const Qp qp = steered();
  Rule rule(device().port_number(), counters.get());
  const Flow flow = flow_of(qp, rule);
  ASSERT_NE(flow, nullptr) << errno_text(errno);
  uint64_t value = 7;
  ASSERT_SUCCEEDS(ibv_read_counters(counters.get(), &value, 1, 0));
  EXPECT_EQ(value, 0u);
}

CONFORMANCE_TEST(offload, TagsAreAddedAndDeleted, "ibv_post_srq_ops.tags",
                 "ibv_create_srq_ex.tm-as-claimed") {
  const ibv_tm_caps& claimed = device().extended().tm_caps;
  if (claimed.max_num_tags == 0) throw NotClaimed{"tm_caps.max_num_tags is 0"};
  // What was matched is read from an extended CQ.
  ibv_cq_init_attr_ex completions = {};
  completions.cqe = 16;
  completions.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  ibv_cq_ex* const extended = CALL(ibv_create_cq_ex(context(), &completions));
  if (extended == nullptr && is_refusal_of_qp(errno))
    throw NotClaimed{"ibv_create_cq_ex refused with " + errno_text(errno)};
  ASSERT_NE(extended, nullptr) << errno_text(errno);
  const Cq own(ibv_cq_ex_to_cq(extended));
  ibv_srq_init_attr_ex attr = {};
  attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  attr.attr = {8, 1, 0};
  attr.srq_type = IBV_SRQT_TM;
  attr.pd = pd();
  attr.cq = own;
  attr.tm_cap = {std::min(claimed.max_num_tags, 4u), std::max(1u, std::min(claimed.max_ops, 4u))};
  const Srq srq(CALL(ibv_create_srq_ex(context(), &attr)));
  ABOUT("ibv_create_srq_ex.tm-as-claimed") ASSERT_NE(srq, nullptr) << errno_text(errno);
  const About about("ibv_post_srq_ops.tags");
  const Buffer buffer(64);
  const Mr mr = make_mr(pd(), buffer);
  ibv_sge element = {buffer.address(), 64, mr->lkey};
  ibv_ops_wr add = {}, *bad = nullptr;
  add.wr_id = 3;
  add.opcode = IBV_WR_TAG_ADD;
  add.flags = IBV_OPS_SIGNALED;
  add.tm.add = {9, &element, 1, 0x77, ~uint64_t{0}};
  const auto completion = [&] {
    ibv_wc wc = {};
    ibv_poll_cq_attr poll = {};
    const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(2));
    while (ibv_start_poll(extended, &poll) != 0) {
      if (std::chrono::steady_clock::now() > end) return wc;
      give_way();
    }
    wc.wr_id = extended->wr_id;
    wc.status = extended->status;
    ibv_end_poll(extended);
    return wc;
  };
  ASSERT_SUCCEEDS(ibv_post_srq_ops(srq, &add, &bad));
  EXPECT_EQ(completion().wr_id, 3u);
  ibv_ops_wr remove = {};
  remove.wr_id = 4;
  remove.opcode = IBV_WR_TAG_DEL;
  remove.flags = IBV_OPS_SIGNALED;
  remove.tm.handle = add.tm.handle;
  ASSERT_SUCCEEDS(ibv_post_srq_ops(srq, &remove, &bad));
  const ibv_wc wc = completion();
  EXPECT_EQ(wc.wr_id, 4u);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(offload, OrdinarySrqsHaveNoTags, "ibv_post_srq_ops.ordinary") {
  const Srq srq = make_srq(device(), pd());
  ibv_ops_wr wr = {}, *bad = nullptr;
  wr.opcode = IBV_WR_TAG_SYNC;
  EXPECT_REFUSED(ibv_post_srq_ops(srq, &wr, &bad));
}

CONFORMANCE_TEST(offload, DeviceMemoryIsImported, "ibv_import_dm.memory", "ibv_unimport_dm.original-stays",
                 "ibv_import_dm.unknown") {
  const uint64_t most = device().extended().max_dm_size;
  if (most == 0) throw NotClaimed{"max_dm_size is 0"};
  ibv_alloc_dm_attr attr = {std::min<uint64_t>(most, 64), 0, 0};
  const Dm dm(CALL(ibv_alloc_dm(context(), &attr)));
  if (!dm && errno == ENOMEM) throw NotTested{"no device memory is free"};  // ibv_alloc_dm(3), NOTES
  ASSERT_NE(dm, nullptr) << errno_text(errno);
  const int copy = dup(context()->cmd_fd);
  const Context imported(CALL(ibv_import_device(copy)));
  if (!imported) {
    const int error = errno;
    close(copy);
    if (!is_refusal(error)) throw NotTested{"ibv_import_device.usable tells of " + errno_text(error)};
    throw NotClaimed{"ibv_import_device refused with " + errno_text(error)};
  }
  ibv_dm* const same = CALL(ibv_import_dm(imported.get(), dm->handle));
  if (same == nullptr && is_refusal(errno))
    throw NotClaimed{"ibv_import_dm refused with " + errno_text(errno)};
  ASSERT_NE(same, nullptr) << errno_text(errno);
  const std::array<uint8_t, 8> sent = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<uint8_t, 8> seen = {};
  ASSERT_SUCCEEDS(ibv_memcpy_to_dm(dm, 8, sent.data(), sent.size()));
  ASSERT_SUCCEEDS(ibv_memcpy_from_dm(seen.data(), same, 8, seen.size()));
  EXPECT_EQ(seen, sent);
  CALL(ibv_unimport_dm(same));
  {
    const About about("ibv_unimport_dm.original-stays");
    seen = {};
    ASSERT_SUCCEEDS(ibv_memcpy_from_dm(seen.data(), dm, 8, seen.size()));
    EXPECT_EQ(seen, sent);
  }
  const About about("ibv_import_dm.unknown");
  EXPECT_TRUE(refused_with_errno(CALL(ibv_import_dm(imported.get(), 0x7fffffff))));
}

}  // namespace
}  // namespace conformance::offload_chapter
