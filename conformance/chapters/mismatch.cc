// SPDX-License-Identifier: BSD-2-Clause
//
// Ends that do not fit together: QPs of different types, other path MTUs, other numbers of READs.
#include <infiniband/verbs.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::mismatch_chapter {
namespace {

constexpr auto short_while = std::chrono::milliseconds(50);

class Fixture : public PairTest {
 protected:
  // SENDs and WRITEs are dropped at the far end, which is in question. Returns how they end here.
  std::vector<ibv_wc_status> dropped(ibv_qp_type here, ibv_qp_type there) {
    std::vector<ibv_wc_status> seen;
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM}) {
      if (opcode != IBV_WR_SEND && here == IBV_QPT_UD) continue;
      PairSpec spec;
      spec.both.type = here;
      spec.far.emplace().type = there;
      spec.tests_far = true;
      spec.path.timeout = 8;  // 1 ms
      spec.path.retry_count = 1;
      new_pair(spec);
      if (far().receive(0, 256) != 0) throw Deviation{"ibv_post_recv; expected: 0", Where::current()};
      if (near().post(remote_request(opcode, {{0, 8}}, far().facts(), 1024)) != 0)
        throw Deviation{"ibv_post_send; expected: 0", Where::current()};
      seen.push_back(near().completion().status);
      EXPECT_TRUE(far().stays_empty(true, short_while)) << "opcode " << opcode;
      EXPECT_TRUE(far().untouched(0, far().facts().length)) << "opcode " << opcode;
      EXPECT_EQ(far().state(), IBV_QPS_RTS) << "opcode " << opcode;
    }
    return seen;
  }
  void expect_statuses(const std::vector<ibv_wc_status>& seen, ibv_wc_status expected) {
    for (const ibv_wc_status status : seen) EXPECT_EQ(status, expected) << ibv_wc_status_str(status);
  }

  // ---- path MTUs ----

  bool connect_mtus(ibv_qp_type type, ibv_mtu here, ibv_mtu there, const wire::Connect& as = {}) {
    PairSpec spec;
    spec.both.type = type;
    spec.is_connected = false;
    new_pair(spec);
    if (pair().mtu() < std::max(here, there)) return false;
    wire::Connect how = as;
    try {
      how.mtu = here;
      EXPECT_EQ(near().connect(far().facts(), how), 0);
      how.mtu = there;
      EXPECT_EQ(far().connect(near().facts(), how), 0);
    } catch (const Deviation&) {  // no page says that a device takes each of them
      throw NotTested{"a path MTU below the active one is refused"};
    }
    return true;
  }

  // ---- READs ----

  void connect_reads(uint8_t here, uint8_t there) {
    PairSpec spec;
    spec.is_connected = false;
    pair(spec);
    wire::Connect how;
    try {
      how.reads = here;
      ASSERT_EQ(near().connect(far().facts(), how), 0);
      how.reads = there;
      ASSERT_EQ(far().connect(near().facts(), how), 0);
    } catch (const Deviation& deviation) {  // no page says that a device takes 0 of them
      if (here != 0 && there != 0) throw;
      throw NotTested{"no READs at all: " + deviation.text};
    }
    far().fill_pattern(0, 4096, 5);
  }
  // A READ that has ended with success has its bytes.
  void expect_bytes_of(const Completion& done) {
    EXPECT_TRUE(done.status == IBV_WC_SUCCESS ? near().has_pattern(8192 + 64 * done.id, 64, 5, 64 * done.id)
                                              : near().untouched(8192 + 64 * done.id, 64));
  }
  int post_read(uint64_t id) {
    return near().post(remote_request(IBV_WR_RDMA_READ, {{static_cast<int64_t>(8192 + 64 * id), 64}},
                                      far().facts(), static_cast<int64_t>(64 * id), id));
  }
  // One READ; what becomes of it.
  std::string fate_of_a_read() {
    if (const int error = post_read(1); error != 0) return "refused with " + errno_text(error);
    const std::vector<Completion> done = near().poll(1, scaled(std::chrono::seconds(1)));
    if (done.empty()) {
      EXPECT_TRUE(near().untouched(8192, 1024));
      return "it waits";
    }
    expect_bytes_of(done.front());
    return ibv_wc_status_str(done.front().status);
  }
};

CONFORMANCE_TEST(mismatch, RcToUc, "mismatch.rc-to-uc") {
  expect_statuses(dropped(IBV_QPT_RC, IBV_QPT_UC), IBV_WC_RETRY_EXC_ERR);
}
CONFORMANCE_TEST(mismatch, RcToUd, "mismatch.rc-to-ud") {
  expect_statuses(dropped(IBV_QPT_RC, IBV_QPT_UD), IBV_WC_RETRY_EXC_ERR);
}
CONFORMANCE_TEST(mismatch, UcToRc, "mismatch.uc-to-rc") {
  expect_statuses(dropped(IBV_QPT_UC, IBV_QPT_RC), IBV_WC_SUCCESS);
}
CONFORMANCE_TEST(mismatch, UcToUd, "mismatch.uc-to-ud") {
  expect_statuses(dropped(IBV_QPT_UC, IBV_QPT_UD), IBV_WC_SUCCESS);
}
CONFORMANCE_TEST(mismatch, UdToUc, "mismatch.ud-to-uc") {
  expect_statuses(dropped(IBV_QPT_UD, IBV_QPT_UC), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(mismatch, ShortMessagesFitAnyPathMtu, "mismatch.path-mtu.short") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    if (!connect_mtus(type, IBV_MTU_1024, IBV_MTU_256)) throw NotTested{"an active MTU below 1024"};
    for (const auto& [from, to] : {std::pair(&near(), &far()), std::pair(&far(), &near())}) {
      from->fill_pattern(0, 256, 5);
      to->fill(4096, 512, Buffer::untouched);
      ASSERT_EQ(to->receive(4096, 512, 7), 0);
      ASSERT_EQ(from->post(send_request({{0, 256}})), 0);
      const Completion sent = from->completion();
      EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << type_name(type) << ": " << completion_text(sent);
      const Completion received = to->received();
      EXPECT_EQ(received.bytes, 256u) << type_name(type);
      EXPECT_TRUE(to->has_pattern(4096, 256, 5)) << type_name(type);
    }
  }
}

CONFORMANCE_TEST(mismatch, LongMessagesArriveWholeOrNot, "mismatch.path-mtu.long") {
  wire::Connect how;
  how.timeout = 8, how.retry_count = 1;  // packets that are too long are dropped: 2 ms until that is told
  if (!connect_mtus(IBV_QPT_RC, IBV_MTU_1024, IBV_MTU_256, how)) throw NotTested{"an active MTU below 1024"};
  near().fill_pattern(0, 3000, 5);
  ASSERT_EQ(far().receive(4096, 4096, 7), 0);
  ASSERT_EQ(near().post(send_request({{0, 3000}})), 0);
  const Completion sent = near().completion();
  observe("mismatch.path-mtu.long", ibv_wc_status_str(sent.status));
  const std::vector<Completion> received = far().poll(1, scaled(short_while), true);
  const bool is_received = !received.empty() && received.front().status == IBV_WC_SUCCESS;
  EXPECT_TRUE(is_received || sent.status != IBV_WC_SUCCESS) << "sent with success, and not received";
  if (!is_received) return;
  EXPECT_EQ(received.front().bytes, 3000u);
  EXPECT_TRUE(far().has_pattern(4096, 3000, 5));
}

CONFORMANCE_TEST(mismatch, MoreReadsThanResources, "mismatch.reads.beyond") {
  constexpr uint8_t most = 4;
  if (device().attributes().max_qp_init_rd_atom < most) throw NotClaimed{"max_qp_init_rd_atom is below 4"};
  connect_reads(most, 1);
  for (uint64_t id = 0; id < 8; ++id) ASSERT_EQ(post_read(id), 0);
  bool has_failed = false;
  for (const Completion& done : near().completions(8)) {
    expect_bytes_of(done);
    const ibv_wc_status expected = has_failed                      ? IBV_WC_WR_FLUSH_ERR
                                   : done.status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS
                                                                   : IBV_WC_REM_INV_REQ_ERR;
    EXPECT_EQ(done.status, expected) << completion_text(done);
    has_failed |= done.status != IBV_WC_SUCCESS;
  }
}

CONFORMANCE_TEST(mismatch, ReadFromAnEndWithoutResources, "mismatch.reads.no-resources") {
  connect_reads(1, 0);
  observe("mismatch.reads.no-resources", fate_of_a_read());
}

CONFORMANCE_TEST(mismatch, ReadOfAnEndThatMayNot, "mismatch.reads.none-outstanding") {
  connect_reads(0, 1);
  observe("mismatch.reads.none-outstanding", fate_of_a_read());
}

}  // namespace
}  // namespace conformance::mismatch_chapter
