// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams: the GRH, Q_Keys, destinations.
#include <algorithm>
#include <cstring>
#include <string>

#include "support/pair.h"

namespace conformance::ud_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  static PairSpec datagrams(uint32_t receive_sges = 1) {
    PairSpec spec;
    spec.both.type = IBV_QPT_UD;
    spec.both.receive_sges = receive_sges;
    return spec;
  }
  // The same; the receiver is in question.
  static PairSpec receiving(uint32_t receive_sges = 1) {
    PairSpec spec = datagrams(receive_sges);
    spec.tests_far = true;
    return spec;
  }
  static wire::MakeEnd datagram_end(const Endpoint* lender = nullptr) {
    wire::MakeEnd spec;
    spec.type = IBV_QPT_UD;
    spec.shares = lender != nullptr ? lender->facts().end : 0;
    return spec;
  }
  static void send(Endpoint& from, const SendRequest& request) {
    ASSERT_EQ(from.post(request), 0);
    EXPECT_EQ(from.completion().status, IBV_WC_SUCCESS);
  }
  SendRequest message(uint32_t imm = 0) {
    SendRequest request = send_request({{1024, 8}}, 1, IBV_WR_SEND_WITH_IMM);
    request.imm = imm;
    return request;
  }
};

CONFORMANCE_TEST(ud, DataBehindTheHeader, "ud.grh.offset", "ud.grh.gids", "ud.source") {
  pair(receiving());
  near().fill_pattern(1024, 8, 5);
  ASSERT_EQ(far().receive(64, 128), 0);
  send(near(), message());
  const Completion received = far().received();
  EXPECT_EQ(received.bytes, 48u);
  EXPECT_TRUE(far().untouched(0, 64));
  EXPECT_TRUE(far().has_pattern(104, 8, 5));
  EXPECT_TRUE(far().untouched(112, 64));
  {
    const About about("ud.source");
    EXPECT_EQ(received.source, near().facts().qpn);
  }
  const About about("ud.grh.gids");
  if ((received.flags & IBV_WC_GRH) == 0) throw NotTested{"the message has no GRH"};
  const std::string header = far().read(64, 40);
  const auto text = [](const std::array<uint8_t, 16>& gid) { return std::string(gid.begin(), gid.end()); };
  const std::string from = text(near().facts().gid), to = text(far().facts().gid);
  const bool is_grh = header.substr(8, 16) == from && header.substr(24) == to;
  const bool is_ipv4 =
      header[20] == 0x45 && header.substr(32, 4) == from.substr(12) && header.substr(36, 4) == to.substr(12);
  EXPECT_TRUE(is_grh || is_ipv4) << "neither the GIDs nor an IPv4 header";
}

CONFORMANCE_TEST(ud, HeaderIsScattered, "ud.grh.scatter") {
  pair(receiving(3));
  if (far().facts().receive_sges < 3) throw NotClaimed{"fewer than three elements"};
  near().fill_pattern(1024, 8, 5);
  ASSERT_EQ(far().receive({{1, {{0, 7}, {100, 35}, {200, 64}}}}), 0);
  send(near(), message());
  EXPECT_EQ(far().received().bytes, 48u);
  EXPECT_TRUE(far().has_pattern(133, 2, 5));
  EXPECT_TRUE(far().untouched(135, 65));
  EXPECT_TRUE(far().has_pattern(200, 6, 5, 2));
  EXPECT_TRUE(far().untouched(206, 64));
}

CONFORMANCE_TEST(ud, QKeys, "ud.qkey.matches", "ud.qkey.differs", "ud.qkey.changed") {
  pair(receiving());
  constexpr uint32_t key = 0x11111111;
  const auto arrives = [&](uint32_t qkey) {
    SendRequest request = message(qkey);
    request.qkey = qkey;
    send(near(), request);
    return far().poll(1, scaled(std::chrono::milliseconds(20)), true).size() == 1;
  };
  ASSERT_EQ(far().receive(0, 128), 0);
  {
    const About about("ud.qkey.differs");
    for (const int bit : {0, 1, 8, 17, 30}) ASSERT_FALSE(arrives(key ^ (1u << bit))) << "bit " << bit;
    EXPECT_TRUE(far().untouched(0, 256));
  }
  {
    const About about("ud.qkey.matches");
    send(near(), message(9));
    const Completion received = far().received();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.imm, 9u);
  }
  const About about("ud.qkey.changed");
  wire::Modify how;
  how.mask = IBV_QP_QKEY;
  how.qkey = 0x22222222;
  ASSERT_EQ(far().modify(how), 0);
  ASSERT_EQ(far().receive(0, 128), 0);
  EXPECT_FALSE(arrives(key)) << "the Q_Key before";
  SendRequest request = message(10);
  request.qkey = 0x22222222;
  send(near(), request);
  EXPECT_EQ(far().received().imm, 10u);
}

CONFORMANCE_TEST(ud, NobodyThere, "ud.destination.absent") {
  pair(receiving());
  uint32_t gone = 0;
  {
    const Endpoint end(topology().near(), datagram_end());
    gone = end.facts().qpn;
  }
  SendRequest request = message();
  request.qpn = gone;
  ASSERT_EQ(far().receive(0, 128), 0);
  send(near(), request);
  EXPECT_TRUE(far().stays_empty(true));
  send(near(), message(3));
  EXPECT_EQ(far().received().imm, 3u);
}

CONFORMANCE_TEST(ud, NotReady, "ud.destination.not-ready") {
  PairSpec spec = receiving();
  spec.is_connected = false;
  pair(spec);
  ASSERT_EQ(near().connect(far().facts()), 0);
  wire::Connect init;
  init.state = IBV_QPS_INIT;
  ASSERT_EQ(far().connect(near().facts(), init), 0);
  ASSERT_EQ(far().receive(0, 128), 0);
  send(near(), message());
  EXPECT_TRUE(far().stays_empty(true));
  EXPECT_TRUE(far().untouched(0, 256));
}

CONFORMANCE_TEST(ud, EachToItsOwn, "ud.destination.each", "ud.many-senders") {
  pair(datagrams());
  Endpoint far_too(topology().far(), datagram_end(&far())),
      near_too(topology().near(), datagram_end(&near()));
  ASSERT_EQ(far_too.connect(near().facts()), 0);
  ASSERT_EQ(near_too.connect(far().facts()), 0);
  for (uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(far().receive(0, 128, id), 0);
    ASSERT_EQ(far_too.receive(512, 128, id), 0);
  }
  for (uint32_t round = 0; round < 2; ++round) {
    uint32_t number = 0;
    for (Endpoint* from : {&near(), &near_too}) {
      for (Endpoint* to : {&far(), &far_too}) {
        SendRequest request = message(++number);
        request.qpn = to->facts().qpn;
        send(*from, request);
        const Completion received = to->received();
        ABOUT("ud.destination.each") {
          EXPECT_EQ(received.imm, number);
          EXPECT_EQ(received.qpn, to->facts().qpn);
        }
        ABOUT("ud.many-senders") EXPECT_EQ(received.source, from->facts().qpn);
      }
    }
  }
}

CONFORMANCE_TEST(ud, ConnectionsAreLeftAlone, "ud.destination.connected") {
  pair(receiving());
  Endpoint near_rc(topology().far(), {}), far_rc(topology().near(), {});
  ASSERT_EQ(near_rc.connect(far_rc.facts()), 0);
  ASSERT_EQ(far_rc.connect(near_rc.facts()), 0);
  ASSERT_EQ(far_rc.receive(0, 128), 0);
  SendRequest request = message();
  request.qpn = far_rc.facts().qpn;
  send(near(), request);
  EXPECT_TRUE(far_rc.stays_empty());
  EXPECT_EQ(far_rc.state(), IBV_QPS_RTS);
  ASSERT_EQ(near_rc.post(send_request({{0, 8}})), 0);
  EXPECT_EQ(near_rc.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far_rc.completion().bytes, 8u);
}

CONFORMANCE_TEST(ud, ToItself, "ud.itself") {
  Endpoint end(topology().near(), datagram_end());
  ASSERT_EQ(end.connect(end.facts()), 0);
  end.fill_pattern(1024, 8, 5);
  ASSERT_EQ(end.receive(0, 128, 4), 0);
  ASSERT_EQ(end.post(message()), 0);
  for (const Completion& done : end.completions(2)) EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(end.has_pattern(40, 8, 5));
}

CONFORMANCE_TEST(ud, ShortReceive, "ud.short-receive") {
  for (const uint32_t room : {1u, 20u, 40u, 47u}) {
    new_pair(receiving());
    ASSERT_EQ(far().receive(64, room), 0);
    send(near(), message());
    for (const Completion& received : far().poll(1, scaled(std::chrono::milliseconds(20)), true))
      EXPECT_NE(received.status, IBV_WC_SUCCESS) << "a receive of " << room << " bytes";
    EXPECT_TRUE(far().untouched(0, 64));
    EXPECT_TRUE(far().untouched(64 + room, 256));
  }
}

}  // namespace
}  // namespace conformance::ud_chapter
