// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: rdma_getaddrinfo.
#include "support/cm.h"

namespace conformance::cm_getaddrinfo_chapter {
namespace {

class Fixture : public CmTest {
 protected:
  static rdma_addrinfo hints_for(rdma_port_space space, int flags = 0) {
    rdma_addrinfo hints = {};
    hints.ai_flags = flags | RAI_NUMERICHOST;  // no name server is asked
    hints.ai_port_space = space;
    return hints;
  }
  static AddressInfo look_up(const char* node, const char* service, const rdma_addrinfo& hints) {
    rdma_addrinfo* found = nullptr;
    if (CALL(rdma_getaddrinfo(node, service, &hints, &found)) != 0)
      throw Deviation{"rdma_getaddrinfo fails, " + errno_text(errno), Where::current()};
    return AddressInfo(found);
  }
  // An InfiniBand port's IP address may stand behind its GID: the list has an element of AF_IB before it
  // where the path is known (rdma-core librdmacm/acm.c, ucma_resolve_af_ib()).
  static const rdma_addrinfo* of_family(const rdma_addrinfo* list, int family) {
    while (list->ai_family != family && list->ai_next != nullptr) list = list->ai_next;
    return list;
  }
};

CONFORMANCE_TEST(cm_setup, PassiveInformation, "rdma_getaddrinfo.passive", "rdma_getaddrinfo.passive-dst",
                 "rdma_getaddrinfo.list") {
  const SocketAddress here = address().with_port(7471);
  const AddressInfo info = look_up(here.host().c_str(), "7471", hints_for(RDMA_PS_TCP, RAI_PASSIVE));
  EXPECT_EQ(info->ai_family, here.family());
  ASSERT_EQ(info->ai_src_len, here.size());
  EXPECT_EQ(SocketAddress(info->ai_src_addr), here);
  {
    const About about("rdma_getaddrinfo.passive-dst");
    EXPECT_EQ(info->ai_dst_len, 0u);
  }
  const About about("rdma_getaddrinfo.list");
  const rdma_addrinfo* last = info;
  for (int i = 0; i < 100 && last != nullptr; ++i) last = last->ai_next;
  EXPECT_EQ(last, nullptr);
}

CONFORMANCE_TEST(cm_setup, DestinationInformation, "rdma_getaddrinfo.destination") {
  const SocketAddress there = far().listen();
  const std::string port = std::to_string(there.port());
  const AddressInfo list = look_up(there.host().c_str(), port.c_str(), hints_for(RDMA_PS_TCP));
  const rdma_addrinfo* const info = of_family(list, there.family());
  EXPECT_EQ(info->ai_family, there.family());
  ASSERT_EQ(info->ai_dst_len, there.size());
  EXPECT_EQ(SocketAddress(info->ai_dst_addr), there);
  near_ = make_id();
  resolve(near_, SocketAddress(info->ai_dst_addr));
}

CONFORMANCE_TEST(cm_setup, InformationOfHints, "rdma_getaddrinfo.hints-only") {
  const SocketAddress there = far().listen();
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP);
  hints.ai_dst_addr = there.get();
  hints.ai_dst_len = there.size();
  const AddressInfo list = look_up(nullptr, nullptr, hints);
  const rdma_addrinfo* const info = of_family(list, there.family());
  ASSERT_EQ(info->ai_dst_len, there.size());
  EXPECT_EQ(SocketAddress(info->ai_dst_addr), there);
}

CONFORMANCE_TEST(cm_setup, TypesOfInformation, "rdma_getaddrinfo.types") {
  for (const rdma_port_space space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    const AddressInfo info = look_up(address().host().c_str(), "7471", hints_for(space));
    EXPECT_EQ(info->ai_qp_type, type_of(space));
    EXPECT_EQ(info->ai_port_space, space);
  }
}

CONFORMANCE_TEST(cm_setup, InformationThatThereIsNot, "rdma_getaddrinfo.numeric-host",
                 "rdma_getaddrinfo.nothing", "rdma_getaddrinfo.inconsistent", "rdma_getaddrinfo.service",
                 "rdma_getaddrinfo.family") {
  addresses();
  rdma_addrinfo tcp = hints_for(RDMA_PS_TCP), datagrams = tcp, sixth = tcp;
  datagrams.ai_qp_type = IBV_QPT_UD;
  sixth.ai_flags |= RAI_FAMILY;
  sixth.ai_family = AF_INET6;
  const struct {
    ClauseId clause;
    const char *node, *service;
    const rdma_addrinfo* hints;
  } rows[] = {
      {"rdma_getaddrinfo.numeric-host", "localhost", "7471", &tcp},
      {"rdma_getaddrinfo.nothing", nullptr, nullptr, nullptr},
      {"rdma_getaddrinfo.inconsistent", "192.0.2.1", "7471", &datagrams},
      {"rdma_getaddrinfo.service", "192.0.2.1", "no such service", &tcp},
      {"rdma_getaddrinfo.family", "192.0.2.1", "7471", &sixth},
  };
  for (const auto& row : rows) {
    const About about(row.clause);
    rdma_addrinfo* found = nullptr;
    EXPECT_NE(CALL(rdma_getaddrinfo(row.node, row.service, row.hints, &found)), 0) << row.clause.clause().id;
  }
}

}  // namespace
}  // namespace conformance::cm_getaddrinfo_chapter
