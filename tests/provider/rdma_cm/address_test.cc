// SPDX-License-Identifier: BSD-2-Clause
//
// BIND, RESOLVE and their older forms: what reaches the connection manager, and what is refused before.
#include <infiniband/ib.h>

#include "fixture.h"

namespace verbena::test {
namespace {

class Addresses : public RdmaCm {
 protected:
  static sockaddr_in ip(const char* text, uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
  }
  template <typename Address>
  int bind(const Address& address, uint16_t size = sizeof(Address), uint16_t reserved = 0) {
    rdma_ucm_bind request = {};
    request.id = create();
    request.addr_size = size;
    request.reserved = reserved;
    memcpy(&request.addr, &address, sizeof address);
    return channel_.command(RDMA_USER_CM_CMD_BIND, request);
  }
};

TEST_F(Addresses, BindTakesEachFamily) {
  EXPECT_EQ(bind(ip("10.0.0.1", 7)), 0);
  EXPECT_EQ(reinterpret_cast<sockaddr_in&>(fake.source).sin_port, htons(7));
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  EXPECT_EQ(bind(six), 0);
  sockaddr_ib ib = {};
  ib.sib_family = AF_IB;
  EXPECT_EQ(bind(ib), 0);
}

TEST_F(Addresses, BindRefusesALengthThatIsNotTheFamilys) {
  EXPECT_EQ(bind(ip("10.0.0.1", 7), sizeof(sockaddr_in6)), EINVAL);
  EXPECT_EQ(bind(ip("10.0.0.1", 7), 0), EINVAL);
  sockaddr_in unknown = {};
  unknown.sin_family = AF_UNIX;
  EXPECT_EQ(bind(unknown), EINVAL);
}

TEST_F(Addresses, BindRefusesReservedBits) {
  EXPECT_EQ(bind(ip("10.0.0.1", 7), sizeof(sockaddr_in), 1), EINVAL);
}

TEST_F(Addresses, ManagersRefusalIsTheCommands) {
  rdma_ucm_bind request = {};
  request.id = create();
  request.addr_size = sizeof(sockaddr_in);
  const sockaddr_in address = ip("10.0.0.1", 7);
  memcpy(&request.addr, &address, sizeof address);
  fake.error = EADDRINUSE;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_BIND, request), EADDRINUSE);
  fake.error = 0;
}

TEST_F(Addresses, BindIpTakesFourAndSix) {
  rdma_ucm_bind_ip request = {};
  request.id = create();
  request.addr.sin6_family = AF_INET6;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_BIND_IP, request), 0);
  request.addr.sin6_family = AF_INET;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_BIND_IP, request), 0);
  request.addr.sin6_family = AF_IB;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_BIND_IP, request), EINVAL);
}

TEST_F(Addresses, ResolveWithoutASourceGivesNone) {
  rdma_ucm_resolve_addr request = {};
  request.id = create();
  request.timeout_ms = 1234;
  request.dst_size = sizeof(sockaddr_in);
  const sockaddr_in address = ip("10.0.0.2", 9);
  memcpy(&request.dst_addr, &address, sizeof address);
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, request), 0);
  EXPECT_EQ(fake.source.ss_family, AF_UNSPEC);
  EXPECT_EQ(fake.destination.ss_family, AF_INET);
  EXPECT_EQ(fake.timeout_ms, 1234u);
}

TEST_F(Addresses, ResolveRefusesWrongLengths) {
  rdma_ucm_resolve_addr request = {};
  request.id = create();
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, request), EINVAL);
  request.dst_size = sizeof(sockaddr_in);
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, request), EINVAL);
  request.dst_addr.ss_family = AF_INET;
  request.src_size = sizeof(sockaddr_in);
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, request), EINVAL);
  request.src_addr.ss_family = AF_INET;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, request), 0);
  request.reserved = 1;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, request), EINVAL);
}

TEST_F(Addresses, ResolveIpRefusesOtherFamilies) {
  rdma_ucm_resolve_ip request = {};
  request.id = create();
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_IP, request), EINVAL);
  request.dst_addr.sin6_family = AF_INET;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_IP, request), 0);
  request.src_addr.sin6_family = AF_UNIX;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_IP, request), EINVAL);
}

TEST_F(Addresses, ResolveRoutePassesTheTimeout) {
  const rdma_ucm_resolve_route request = {.id = create(), .timeout_ms = 55};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, request), 0);
  EXPECT_EQ(fake.timeout_ms, 55u);
}

}  // namespace
}  // namespace verbena::test
