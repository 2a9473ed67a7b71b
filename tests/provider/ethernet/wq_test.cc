// SPDX-License-Identifier: BSD-2-Clause
//
// Work queues, and raw packet QPs that spread their frames over them.
#include <map>

#include "flow_fixture.h"

namespace verbena::test {
namespace {

using Wq = std::unique_ptr<ibv_wq, Destroyer<ibv_destroy_wq>>;
using Table = std::unique_ptr<ibv_rwq_ind_table, Destroyer<ibv_destroy_rwq_ind_table>>;

// The key and the hashes that Microsoft gives as examples ("Verifying the RSS Hash Calculation").
uint8_t example_key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                           0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                           0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

class WqTest : public FlowTest {
 protected:
  Wq make_wq(uint32_t max_wr = 16) {
    ibv_wq_init_attr attr = {};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = max_wr;
    attr.max_sge = 1;
    attr.pd = pd_.get();
    attr.cq = wq_cq_.get();
    return Wq(ibv_create_wq(context_.get(), &attr));
  }
  void SetUp() override {
    FlowTest::SetUp();
    if (HasFatalFailure()) return;
    wq_cq_ = make_cq(256);
    memory_ = Buffer(pd_.get(), 4096);
  }
  static int modify(ibv_wq* wq, ibv_wq_state to, uint32_t more = 0, ibv_wq_state from = IBV_WQS_RESET) {
    ibv_wq_attr attr = {};
    attr.attr_mask = IBV_WQ_ATTR_STATE | more;
    attr.wq_state = to;
    attr.curr_wq_state = from;
    return ibv_modify_wq(wq, &attr);
  }
  int post(ibv_wq* wq, uint64_t id) {
    ibv_sge sge = memory_.sge(0, 4096);
    ibv_recv_wr wr = {.wr_id = id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_wq_recv(wq, &wr, &bad);
  }
  Table make_table(std::vector<ibv_wq*> list, uint32_t log) {
    ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = log, .ind_tbl = list.data(), .comp_mask = 0};
    return Table(ibv_create_rwq_ind_table(context_.get(), &attr));
  }
  Qp make_rss(ibv_rwq_ind_table* table, uint64_t fields, uint8_t function = IBV_RX_HASH_FUNC_TOEPLITZ,
              uint8_t key_length = 40) {
    ibv_qp_init_attr_ex init = {};
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.pd = pd_.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    init.rwq_ind_tbl = table;
    init.rx_hash_conf = {function, key_length, example_key, fields};
    errno = 0;
    return Qp(ibv_create_qp_ex(context_.get(), &init));
  }

  Cq wq_cq_;
  Buffer memory_;
};

TEST_F(WqTest, IsClaimed) {
  ibv_device_attr_ex attr = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &attr), 0);
  EXPECT_GT(attr.max_wq_type_rq, 0u);
  EXPECT_EQ(attr.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
  EXPECT_EQ(attr.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
  EXPECT_EQ(attr.rss_caps.max_rwq_indirection_table_size, 512u);
}

TEST_F(WqTest, HasStates) {
  const Wq wq = make_wq();
  ASSERT_NE(wq, nullptr) << strerror(errno);
  EXPECT_EQ(post(wq.get(), 1), EINVAL) << "in RESET";
  EXPECT_EQ(modify(wq.get(), IBV_WQS_ERR), EINVAL);
  EXPECT_EQ(modify(wq.get(), IBV_WQS_RDY, IBV_WQ_ATTR_CURR_STATE, IBV_WQS_ERR), EINVAL);
  EXPECT_EQ(modify(wq.get(), IBV_WQS_RDY), 0);
  EXPECT_EQ(wq->state, IBV_WQS_RDY);
  EXPECT_EQ(post(wq.get(), 1), 0);
  EXPECT_EQ(modify(wq.get(), IBV_WQS_ERR, IBV_WQ_ATTR_CURR_STATE, IBV_WQS_RDY), 0);
  const ibv_wc wc = next_completion(wq_cq_.get());
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.qp_num, wq->wq_num);
  EXPECT_EQ(modify(wq.get(), IBV_WQS_RDY), EINVAL);
  EXPECT_EQ(modify(wq.get(), IBV_WQS_RESET), 0);
  EXPECT_EQ(modify(wq.get(), IBV_WQS_RDY), 0);
}

TEST_F(WqTest, KeepsItsCqAndIsKeptByItsTable) {
  Wq wq = make_wq();
  EXPECT_EQ(ibv_destroy_cq(wq_cq_.get()), EBUSY);
  const Table table = make_table({wq.get()}, 0);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(ibv_destroy_wq(wq.get()), EBUSY);
  const Qp qp = make_rss(table.get(), 0);
  ASSERT_NE(qp, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table.get()), EBUSY);
}

TEST_F(WqTest, AHashThatTheDeviceDoesNotHaveIsRefused) {
  const Wq wq = make_wq();
  const Table table = make_table({wq.get()}, 0);
  const auto refusal = [&](uint64_t fields, uint8_t function, uint8_t key) {
    return make_rss(table.get(), fields, function, key) == nullptr ? errno : 0;
  };
  EXPECT_EQ(refusal(0, 2, 40), EOPNOTSUPP);
  EXPECT_EQ(refusal(0, IBV_RX_HASH_FUNC_TOEPLITZ, 39), EINVAL);
  EXPECT_EQ(refusal(IBV_RX_HASH_INNER, IBV_RX_HASH_FUNC_TOEPLITZ, 40), EOPNOTSUPP);
  EXPECT_EQ(refusal(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6, IBV_RX_HASH_FUNC_TOEPLITZ, 40), EINVAL);
  EXPECT_EQ(refusal(IBV_RX_HASH_SRC_PORT_TCP, IBV_RX_HASH_FUNC_TOEPLITZ, 40), EINVAL);
}

TEST_F(WqTest, AQpThatSpreadsHasNoStates) {
  const Wq wq = make_wq();
  const Table table = make_table({wq.get()}, 0);
  const Qp qp = make_rss(table.get(), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
}

// The queue of a frame is the one at the low bits of its hash.
TEST_F(WqTest, FramesGoWhereTheirHashSays) {
  constexpr uint32_t kLog = 3;
  std::vector<Wq> queues;
  std::vector<ibv_wq*> list;
  std::map<uint32_t, uint32_t> place;  // by number
  for (uint32_t i = 0; i < 1u << kLog; i++) {
    queues.push_back(make_wq());
    ASSERT_NE(queues.back(), nullptr);
    ASSERT_EQ(modify(queues.back().get(), IBV_WQS_RDY), 0);
    for (uint64_t id = 0; id < 16; id++) ASSERT_EQ(post(queues.back().get(), id), 0);
    list.push_back(queues.back().get());
    place[queues.back()->wq_num] = i;
  }
  const Table table = make_table(list, kLog);
  const Qp qp = make_rss(table.get(), IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_TCP |
                                          IBV_RX_HASH_DST_PORT_TCP);
  ASSERT_NE(qp, nullptr) << strerror(errno);
  Rule rule;
  const Flow flow(ibv_create_flow(qp.get(), &rule.attr()));
  ASSERT_NE(flow, nullptr) << strerror(errno);
  const struct {
    const char *from, *to;
    uint16_t from_port, to_port;
    uint32_t with_ports, without;
  } examples[] = {{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x51ccc178, 0x323e8fc2},
                  {"199.92.111.2", "65.69.140.83", 14230, 4739, 0xc626b0ea, 0xd718262a},
                  {"24.19.198.95", "12.22.207.184", 12898, 38024, 0x5c2b394a, 0xd2d0a5de},
                  {"38.27.205.30", "209.142.163.6", 48228, 2217, 0xafc7327f, 0x82989176},
                  {"153.39.163.191", "202.188.127.2", 44251, 1303, 0x10e828a2, 0x5d1809c5}};
  for (const auto& example : examples) {
    for (const bool tcp : {true, false}) {
      const Frame frame = Frame(mac(1), mac(2))
                              .ipv4(example.from, example.to, tcp ? IPPROTO_TCP : IPPROTO_UDP)
                              .ports(example.from_port, example.to_port)
                              .payload(40);
      ASSERT_EQ(send(frame), IBV_WC_SUCCESS);
      const ibv_wc wc = next_completion(wq_cq_.get());
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.byte_len, frame.bytes.size());
      EXPECT_EQ(place.at(wc.qp_num), (tcp ? example.with_ports : example.without) & 7) << example.from << tcp;
    }
  }
  // A frame without the fields has the hash 0.
  ASSERT_EQ(send(Frame(mac(1), mac(2)).type(0x88b5).payload(40)), IBV_WC_SUCCESS);
  EXPECT_EQ(place.at(next_completion(wq_cq_.get()).qp_num), 0u);
}

TEST_F(WqTest, AQueueThatIsNotReadyDropsItsFrames) {
  const Wq wq = make_wq();
  const Table table = make_table({wq.get()}, 0);
  const Qp qp = make_rss(table.get(), 0);
  Rule rule;
  const Flow flow(ibv_create_flow(qp.get(), &rule.attr()));
  const Frame frame = Frame(mac(1), mac(2)).type(0x88b5).payload(40);
  EXPECT_EQ(send(frame), IBV_WC_SUCCESS);
  ASSERT_EQ(modify(wq.get(), IBV_WQS_RDY), 0);
  ASSERT_EQ(post(wq.get(), 7), 0);
  EXPECT_TRUE(is_empty(wq_cq_.get()));
  EXPECT_EQ(send(frame), IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(wq_cq_.get()).wr_id, 7u);
}

}  // namespace
}  // namespace verbena::test
