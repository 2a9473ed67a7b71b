// SPDX-License-Identifier: BSD-2-Clause
//
// Posting requests: which opcode belongs to which QP type. Generated from the table of ibv_post_send(3).
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::post_opcodes_chapter {
namespace {

struct Row {
  ibv_qp_type type;
  const char* clause;  // after "ibv_post_send."
  std::vector<ibv_wr_opcode> opcodes;
  bool supported;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {IBV_QPT_RC, "rc.send", {IBV_WR_SEND}, true},
      {IBV_QPT_RC, "rc.send-imm", {IBV_WR_SEND_WITH_IMM}, true},
      {IBV_QPT_RC, "rc.write", {IBV_WR_RDMA_WRITE}, true},
      {IBV_QPT_RC, "rc.write-imm", {IBV_WR_RDMA_WRITE_WITH_IMM}, true},
      {IBV_QPT_RC, "rc.read", {IBV_WR_RDMA_READ}, true},
      {IBV_QPT_RC, "rc.cmp-swp", {IBV_WR_ATOMIC_CMP_AND_SWP}, true},
      {IBV_QPT_RC, "rc.fetch-add", {IBV_WR_ATOMIC_FETCH_AND_ADD}, true},
      {IBV_QPT_RC, "rc.no-tso", {IBV_WR_TSO}, false},
      {IBV_QPT_UC, "uc.send", {IBV_WR_SEND}, true},
      {IBV_QPT_UC, "uc.send-imm", {IBV_WR_SEND_WITH_IMM}, true},
      {IBV_QPT_UC, "uc.write", {IBV_WR_RDMA_WRITE}, true},
      {IBV_QPT_UC, "uc.write-imm", {IBV_WR_RDMA_WRITE_WITH_IMM}, true},
      {IBV_QPT_UC, "uc.no-read", {IBV_WR_RDMA_READ}, false},
      {IBV_QPT_UC, "uc.no-atomic", {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}, false},
      {IBV_QPT_UD, "ud.send", {IBV_WR_SEND}, true},
      {IBV_QPT_UD, "ud.send-imm", {IBV_WR_SEND_WITH_IMM}, true},
      {IBV_QPT_UD, "ud.no-write", {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM}, false},
      {IBV_QPT_UD, "ud.no-read", {IBV_WR_RDMA_READ}, false},
      {IBV_QPT_UD, "ud.no-atomic", {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}, false},
      {IBV_QPT_UD, "ud.no-inv", {IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV}, false},
  };
  return table;
}

class OpcodeTest final : public PairTest {
 public:
  explicit OpcodeTest(const Row& row) : row_(row) {}

 private:
  void run() override {
    for (const ibv_wr_opcode opcode : row_.opcodes) {
      if (is_atomic(opcode) && row_.supported && device().attributes().atomic_cap == IBV_ATOMIC_NONE)
        throw NotClaimed{"atomic_cap is none"};
      PairSpec spec;
      spec.both.type = row_.type;
      new_pair(spec);
      if (is_atomic(opcode) && row_.supported && !pair().has_atomics())
        throw NotTested{"the far end has no atomics"};
      if (row_.supported)
        expect_carried_out(opcode);
      else
        expect_not_carried_out(opcode);
    }
  }

  SendRequest request(ibv_wr_opcode opcode) {
    return near().is_datagram() ? send_request({{0, 8}}, 1, opcode)
                                : remote_request(opcode, {{0, 8}}, far().facts());
  }

  void expect_carried_out(ibv_wr_opcode opcode) {
    if (takes_a_receive(opcode)) {
      ASSERT_EQ(far().receive(0, 256), 0);
    }
    ASSERT_EQ(near().post(request(opcode)), 0);
    const Completion sent = near().completion();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << completion_text(sent);
    if (!takes_a_receive(opcode)) return;
    const Completion received = far().received();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS) << completion_text(received);
  }

  void expect_not_carried_out(ibv_wr_opcode opcode) {
    if (near().post(request(opcode)) != 0) return;
    EXPECT_NE(near().completion().status, IBV_WC_SUCCESS)
        << "opcode " << opcode << " was taken and completed with success";
  }

  const Row& row_;
};

[[maybe_unused]] const bool generated = [] {
  for (const Row& row : rows())
    register_generated("post", "Opcode" + test_name(row.clause), {"ibv_post_send." + std::string(row.clause)},
                       Traits(), __FILE__, __LINE__,
                       [&row]() -> testing::Test* { return new OpcodeTest(row); });
  return true;
}();

}  // namespace
}  // namespace conformance::post_opcodes_chapter
