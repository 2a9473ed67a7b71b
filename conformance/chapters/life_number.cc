// SPDX-License-Identifier: BSD-2-Clause
//
// What becomes of the number of a destroyed QP. Its peer knows nothing of that, and goes on to send.
#include <algorithm>
#include <string>
#include <vector>

#include "support/ends.h"
#include "support/fixture.h"

namespace conformance::life_number_chapter {
namespace {

constexpr int most_successors = 12;  // as far as the device has them, beside other tests
constexpr uint32_t size = 256;

// Both ends are in this process: the QPs that may inherit the number have to be where the destroyed one was.
class Fixture : public DeviceTest {
 protected:
  // Of the default path. A message is either new or old for a receiver that expects another half of the PSNs.
  static constexpr uint32_t other_psn = Path{}.psn ^ 0x800000;

  // Connected with itself: a message that it does not send comes from elsewhere.
  Qp successor(const End& at, ibv_qp_type type) {
    QpSpec spec;
    spec.type = type;
    Qp qp = make_qp(at.pd, at.cq, spec);
    created_.push_back(qp->qp_num);
    Path path;
    path.destination = qp->qp_num;
    path.psn = other_psn;
    path.qkey ^= 1;
    bring_to(qp, IBV_QPS_RTS, attributes_for(device(), path));
    ibv_sge element = at.sge(size * created_.size(), size);
    ibv_recv_wr wr = {created_.size(), nullptr, &element, 1}, *bad = nullptr;
    need(ibv_post_recv(qp, &wr, &bad));
    return qp;
  }

  void stale_messages(ibv_qp_type type) {
    EndsSpec spec;
    spec.qp.type = type;
    spec.path.timeout = 12;
    spec.path.retry_count = 1;
    Ends ends(device(), spec);
    std::fill_n(ends.near.buffer.data(), 8, uint8_t{0xa7});
    const uint32_t number = ends.far.qp->qp_num;
    if (const int error = CALL(ends.far.qp.destroy()); error != 0)
      throw Deviation{"ibv_destroy_qp; expected: 0; seen: " + errno_text(error), Where::current()};
    std::vector<Qp> later;
    const int successors = std::clamp(device().attributes().max_qp / 4, 1, most_successors);
    for (int i = 0; i < successors; ++i) later.push_back(successor(ends.far, type));
    observe("life.qp-number.later", created_.front() == number ? "the next QP has the same number"
                                                               : "the next QP has another number");
    const About about("life.qp-number.stale");
    ibv_sge element = ends.near.sge(0, 8);
    ibv_send_wr wr = ends.near.request(IBV_WR_SEND, &element);
    need(ends.near.post(wr));
    completion(ends.near.cq);  // with whatever status: it has been tried
    EXPECT_TRUE(stays_empty(ends.far.cq));
    EXPECT_TRUE(ends.far.buffer.is(Buffer::untouched, 0, ends.far.buffer.size()))
        << "expected: the receive buffers as they were; seen: bytes for a destroyed QP";
  }

 private:
  static void need(int error) {
    if (error != 0) throw Deviation{"posting; expected: 0; seen: " + errno_text(error), Where::current()};
  }

  std::vector<uint32_t> created_;
};

CONFORMANCE_TEST(life, NumberOfADestroyedRcQp, "life.qp-number.later", "life.qp-number.stale") {
  stale_messages(IBV_QPT_RC);
}
CONFORMANCE_TEST(life, NumberOfADestroyedUdQp, "life.qp-number.later", "life.qp-number.stale") {
  stale_messages(IBV_QPT_UD);
}

}  // namespace
}  // namespace conformance::life_number_chapter
