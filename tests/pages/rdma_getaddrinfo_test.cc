// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_getaddrinfo(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | resolves the destination node and service address | clause rdma_getaddrinfo.destination, ANameAndAServicesNameAreADestination |
// | provides the functional equivalent to getaddrinfo | everywhere |
// | returns 0 on success, -1 on error, or an error code EAI_... | ANodeThatIsNoneIsAnEaiCode, AServiceThatIsNoneIsAnEaiCode |
// | EAI_ADDRFAMILY, EAI_NONAME, EAI_SERVICE | ANodeThatIsNoneIsAnEaiCode, AServiceThatIsNoneIsAnEaiCode, AnAddressOfAnotherFamilyIsAnEaiCode |
// | EAI_AGAIN, EAI_FAIL, EAI_MEMORY, EAI_NODATA, EAI_SYSTEM | not testable: a name server's moods |
// | EAI_QPTYPE when ai_qp_type and ai_port_space are inconsistent | InconsistentTypesAreAnEaiCode: the code does not exist, it is getaddrinfo's |
// | EAI_NONAME when node and service are NULL | NothingAtAllIsMinusOneAndEinval: 44.0 says so |
// | either node, service, or hints must be provided | NothingAtAllIsMinusOneAndEinval |
// | RAI_PASSIVE: for use on the passive side | PassiveIsASourceAddress |
// | if node is not given: based on the hints' addresses | clause rdma_getaddrinfo.hints-only |
// | RAI_NUMERICHOST: node must be a numerical network address | NumericHostRefusesNames |
// | RAI_NOROUTE: suppresses lengthy route resolution | NoRouteHasNoRoute |
// | RAI_FAMILY: ai_family is an input hint; AF_IB from a numeric node | FamilyMakesAnIbAddress |
// | ai_family: AF_INET, AF_INET6, AF_IB | clause rdma_getaddrinfo.destination, ASixthVersionAddressHasItsFamily, FamilyMakesAnIbAddress |
// | ai_qp_type: IBV_QPT_UD and IBV_QPT_RC | TheTypeFollowsThePortSpace |
// | ai_port_space: RDMA_PS_UDP, RDMA_PS_TCP, RDMA_PS_IB | TheTypeFollowsThePortSpace |
// | ai_src_len: 0 if no source address could be discovered | WithoutASourceTheLengthIsZero |
// | ai_src_addr: if provided, the address for the local device | TheHintsSourceIsTaken |
// | ai_dst_len: 0 if RAI_PASSIVE | PassiveIsASourceAddress |
// | ai_src_canonname, ai_dst_canonname | not testable: 44.0 never asks for them (ucma_convert_to_ai sets no AI_CANONNAME) |
// | ai_route_len: 0 if none could be resolved | NoRouteHasNoRoute |
// | ai_connect_len: 0 if not required | NoConnectionDataAreRequired |
// | ai_connect must be transferred as private data, before the user's | not testable: only ibacm makes any |
// | ai_next: NULL if no more structures exist | ThereIsOneResult |
// clang-format on
#include <infiniband/ib.h>
#include <netdb.h>

#include "id_test.h"

namespace verbena::pages {
namespace {

class RdmaGetaddrinfo : public IdTest {
 protected:
  static rdma_addrinfo hints_for(rdma_port_space space, int flags = 0) {
    rdma_addrinfo hints = {};
    hints.ai_flags = flags;
    hints.ai_port_space = space;
    return hints;
  }
  static Info look_up(const char* node, const char* service, const rdma_addrinfo* hints) {
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(rdma_getaddrinfo(node, service, hints, &found), 0) << strerror(errno);
    return Info(found);
  }
  static int error(const char* node, const char* service, const rdma_addrinfo* hints) {
    rdma_addrinfo* found = nullptr;
    errno = 0;
    const int answer = rdma_getaddrinfo(node, service, hints, &found);
    if (answer == 0) rdma_freeaddrinfo(found);
    return answer;
  }

  rdma_addrinfo tcp_ = hints_for(RDMA_PS_TCP);
  rdma_addrinfo passive_ = hints_for(RDMA_PS_TCP, RAI_PASSIVE);
};

TEST_F(RdmaGetaddrinfo, ANameAndAServicesNameAreADestination) {
  const Info info = look_up("localhost", "7471", &tcp_);
  EXPECT_TRUE(info->ai_family == AF_INET || info->ai_family == AF_INET6);
  EXPECT_NE(info->ai_dst_addr, nullptr);
}

TEST_F(RdmaGetaddrinfo, ANodeThatIsNoneIsAnEaiCode) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP, RAI_NUMERICHOST);  // no name server is asked
  EXPECT_EQ(error("not an address", "7471", &hints), EAI_NONAME);
}

TEST_F(RdmaGetaddrinfo, AServiceThatIsNoneIsAnEaiCode) {
  EXPECT_EQ(error("192.0.2.7", "no such service", &tcp_), EAI_SERVICE);
}

TEST_F(RdmaGetaddrinfo, AnAddressOfAnotherFamilyIsAnEaiCode) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP);
  hints.ai_family = AF_INET6;
  EXPECT_EQ(error("192.0.2.7", "7471", &hints), EAI_ADDRFAMILY);
}

// ucma_convert_to_ai (addrinfo.c, 44.0) asks getaddrinfo for SOCK_DGRAM over TCP.
TEST_F(RdmaGetaddrinfo, InconsistentTypesAreAnEaiCode) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP);
  hints.ai_qp_type = IBV_QPT_UD;
  EXPECT_EQ(error("192.0.2.7", "7471", &hints), EAI_SOCKTYPE);
}

// rdma_getaddrinfo (addrinfo.c, 44.0): ERR(EINVAL).
TEST_F(RdmaGetaddrinfo, NothingAtAllIsMinusOneAndEinval) {
  EXPECT_EQ(error(nullptr, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaGetaddrinfo, PassiveIsASourceAddress) {
  const Info info = look_up("192.0.2.7", "7471", &passive_);
  EXPECT_EQ(info->ai_flags & RAI_PASSIVE, RAI_PASSIVE);
  ASSERT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(text_of(info->ai_src_addr), "192.0.2.7");
  EXPECT_EQ(info->ai_dst_len, 0u);
  EXPECT_EQ(info->ai_dst_addr, nullptr);
}

TEST_F(RdmaGetaddrinfo, NumericHostRefusesNames) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP, RAI_NUMERICHOST);
  EXPECT_EQ(error("localhost", "7471", &hints), EAI_NONAME);
  EXPECT_EQ(error("127.0.0.1", "7471", &hints), 0);
}

TEST_F(RdmaGetaddrinfo, NoRouteHasNoRoute) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP, RAI_NOROUTE);
  const Info info = look_up("192.0.2.7", "7471", &hints);
  EXPECT_EQ(info->ai_route_len, 0u);
  EXPECT_EQ(info->ai_route, nullptr);
}

TEST_F(RdmaGetaddrinfo, FamilyMakesAnIbAddress) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP, RAI_FAMILY | RAI_NUMERICHOST);
  hints.ai_family = AF_IB;
  const Info info = look_up("fd00::7", "7471", &hints);
  EXPECT_EQ(info->ai_family, AF_IB);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_ib));
  const auto* address = reinterpret_cast<sockaddr_ib*>(info->ai_dst_addr);
  EXPECT_EQ(be64toh(address->sib_sid), RDMA_IB_IP_PS_TCP + 7471);
  EXPECT_EQ(address->sib_addr.sib_raw[15], 7);
}

TEST_F(RdmaGetaddrinfo, ASixthVersionAddressHasItsFamily) {
  const Info info = look_up("fd00::7", "7471", &tcp_);
  EXPECT_EQ(info->ai_family, AF_INET6);
  EXPECT_EQ(info->ai_dst_len, sizeof(sockaddr_in6));
}

TEST_F(RdmaGetaddrinfo, TheTypeFollowsThePortSpace) {
  EXPECT_EQ(look_up("192.0.2.7", "7471", &tcp_)->ai_qp_type, IBV_QPT_RC);
  rdma_addrinfo hints = hints_for(RDMA_PS_UDP);
  const Info udp = look_up("192.0.2.7", "7471", &hints);
  EXPECT_EQ(udp->ai_qp_type, IBV_QPT_UD);
  EXPECT_EQ(udp->ai_port_space, RDMA_PS_UDP);
  hints = hints_for(RDMA_PS_IB);
  hints.ai_qp_type = IBV_QPT_RC;
  const Info ib = look_up("192.0.2.7", "7471", &hints);
  EXPECT_EQ(ib->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(ib->ai_port_space, RDMA_PS_IB);
}

TEST_F(RdmaGetaddrinfo, WithoutASourceTheLengthIsZero) {
  const Info info = look_up("192.0.2.7", "7471", &tcp_);
  EXPECT_EQ(info->ai_src_len, 0u);
  EXPECT_EQ(info->ai_src_addr, nullptr);
}

TEST_F(RdmaGetaddrinfo, TheHintsSourceIsTaken) {
  rdma_addrinfo hints = hints_for(RDMA_PS_TCP);
  hints.ai_src_addr = address_.get();
  hints.ai_src_len = address_.size();
  const Info info = look_up("192.0.2.7", "7471", &hints);
  ASSERT_EQ(info->ai_src_len, address_.size());
  EXPECT_EQ(text_of(info->ai_src_addr), host_);
}

TEST_F(RdmaGetaddrinfo, NoConnectionDataAreRequired) {
  const Info info = look_up("192.0.2.7", "7471", &tcp_);
  EXPECT_EQ(info->ai_connect_len, 0u);
  EXPECT_EQ(info->ai_connect, nullptr);
}

TEST_F(RdmaGetaddrinfo, ThereIsOneResult) {
  EXPECT_EQ(look_up("192.0.2.7", "7471", &tcp_)->ai_next, nullptr);
}

}  // namespace
}  // namespace verbena::pages
