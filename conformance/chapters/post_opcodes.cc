// SPDX-License-Identifier: BSD-2-Clause
//
// Posting requests: which opcode belongs to which QP type. Generated from the table of ibv_post_send(3).
#include <string>
#include <vector>

#include "support/ends.h"
#include "support/fixture.h"

namespace conformance {
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

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool takes_a_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

class OpcodeTest final : public DeviceTest {
 public:
  explicit OpcodeTest(const Row& row) : row_(row) {}

 private:
  void run() override {
    for (const ibv_wr_opcode opcode : row_.opcodes) {
      if (is_atomic(opcode) && row_.supported && device().attributes().atomic_cap == IBV_ATOMIC_NONE)
        throw NotClaimed{"atomic_cap is none"};
      EndsSpec spec;
      spec.qp.type = row_.type;
      Ends ends(device(), spec);
      if (row_.supported)
        expect_carried_out(ends, opcode);
      else
        expect_not_carried_out(ends, opcode);
    }
  }

  static ibv_send_wr request(const Ends& ends, ibv_wr_opcode opcode, ibv_sge& element) {
    element = ends.near.sge(0, 8);
    return ends.near.qp->qp_type == IBV_QPT_UD ? ends.near.request(opcode, &element)
                                               : ends.near.remote(opcode, &element, ends.far);
  }

  static void expect_carried_out(const Ends& ends, ibv_wr_opcode opcode) {
    if (takes_a_receive(opcode)) {
      ASSERT_TRUE(succeeded(ends.far.post_receive(0, 256)));
    }
    ibv_sge element;
    ibv_send_wr wr = request(ends, opcode, element);
    ASSERT_TRUE(succeeded(ends.near.post(wr)));
    const ibv_wc wc = completion(ends.near.cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    if (!takes_a_receive(opcode)) return;
    const ibv_wc received = completion(ends.far.cq);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS) << wc_text(received);
  }

  static void expect_not_carried_out(const Ends& ends, ibv_wr_opcode opcode) {
    ibv_sge element;
    ibv_send_wr wr = request(ends, opcode, element);
    if (ends.near.post(wr) != 0) return;
    const ibv_wc wc = completion(ends.near.cq);
    EXPECT_NE(wc.status, IBV_WC_SUCCESS) << "opcode " << opcode << " was taken and completed with success";
  }

  const Row& row_;
};

std::string name_of(const Row& row) {
  std::string out = "Opcode";
  bool upper = true;
  for (const char* c = row.clause; *c != 0; ++c) {
    if (*c == '.' || *c == '-') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(*c - 'a' + 'A') : *c;
    upper = false;
  }
  return out;
}

[[maybe_unused]] const bool generated = [] {
  for (const Row& row : rows())
    register_generated("post", name_of(row), {"ibv_post_send." + std::string(row.clause)}, Traits(), __FILE__,
                       __LINE__, [&row]() -> testing::Test* { return new OpcodeTest(row); });
  return true;
}();

}  // namespace
}  // namespace conformance
