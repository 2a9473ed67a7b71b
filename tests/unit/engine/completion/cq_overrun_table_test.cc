// SPDX-License-Identifier: BSD-2-Clause
//
// A CQ that overruns, on each side of each transport. The completion that finds no room is lost, the CQ
// reports CQ_ERR, and its queue pair is in error with QP_FATAL (vol. 1, 11.6.3.1 and 11.6.3.2). The peer sees
// nothing but the failure of its request.
#include <gtest/gtest.h>

#include <set>

#include "unit/engine/error_scene.h"

namespace verbena {
namespace {

struct OverrunCase {
  TransportType transport;
  bool at_responder;
};
void PrintTo(const OverrunCase& chosen, std::ostream* out) {
  *out << kTransportNames[static_cast<size_t>(chosen.transport)];
}

struct CqOverrunTable : ::testing::TestWithParam<OverrunCase> {
  static constexpr uint32_t kRoom =
      4;  // of the CQ that overruns, and of each side's requests: fewer than are posted
  CqOverrunTable() {
    EXPECT_EQ(resize_cq(victim(), kRoom), 0);
    for (uint32_t i = 0; i <= kRoom; ++i) {
      scene.post_receive({scene.remote.sge(i * 64, 64)});
      ibv_send_wr wr = scene.request(IBV_WR_SEND, {scene.local.sge(0, 8)});
      if (at_responder() && i < kRoom) wr.send_flags = 0;
      EXPECT_EQ(scene.post(wr), 0);
    }
  }
  bool at_responder() const { return GetParam().at_responder; }
  Cq* victim() const { return at_responder() ? scene.recv_cq.get() : scene.send_cq.get(); }
  Qp* failing() const { return at_responder() ? scene.responder() : scene.requester(); }
  ErrorScene scene{GetParam().transport};
};

TEST_P(CqOverrunTable, ItsQueuePairIsInError) {
  EXPECT_TRUE(eventually([&] { return scene.state_of(failing()) == IBV_QPS_ERR; }));
}

TEST_P(CqOverrunTable, TheOtherSidesRequestFailsIfItIsAcknowledged) {
  if (!at_responder()) {
    EXPECT_EQ(scene.state_of(scene.responder()), IBV_QPS_RTS);
    return;
  }
  const ibv_wc wc = completion(scene.send_cq.get());
  EXPECT_EQ(wc.vendor_err, static_cast<uint32_t>(scene.acknowledged() ? VendorError::remote_operation_failed
                                                                      : VendorError::none));
  EXPECT_EQ(scene.state_of(scene.requester()), scene.acknowledged() ? IBV_QPS_ERR : IBV_QPS_RTS);
}

TEST_P(CqOverrunTable, TheEventsAreTheCqsAndItsQueuePairs) {
  constexpr uint64_t kCqHandle = 0;
  const std::set<std::pair<uint32_t, uint64_t>> expected = {{IBV_EVENT_CQ_ERR, kCqHandle},
                                                            {IBV_EVENT_QP_FATAL, at_responder() ? 0xb : 0xa}};
  std::set<std::pair<uint32_t, uint64_t>> told;
  while (told.size() < expected.size()) {
    const AsyncEvent event = async_event(scene.context.get());
    ASSERT_TRUE(told.insert({event.type, event.element}).second) << event.type;
  }
  EXPECT_EQ(told, expected);
}

std::vector<OverrunCase> overrun_cases() {
  std::vector<OverrunCase> all;
  for (const TransportType transport : {TransportType::kRc, TransportType::kUc, TransportType::kUd, TransportType::kXrc})
    for (const bool at_responder : {false, true}) all.push_back({transport, at_responder});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, CqOverrunTable, ::testing::ValuesIn(overrun_cases()), [](const auto& chosen) {
  return std::string(kTransportNames[static_cast<size_t>(chosen.param.transport)]) +
         (chosen.param.at_responder ? "Responder" : "Requester");
});

}  // namespace
}  // namespace verbena
