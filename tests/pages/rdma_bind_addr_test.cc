// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_bind_addr(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | associates a source address with an rdma_cm_id | clause rdma_get_local_addr.bound |
// | the address may be wildcarded | clause rdma_bind_addr.wildcard |
// | a specific local address: also bound to a local RDMA device | clause rdma_bind_addr.device, ASixthVersionAddressToo |
// | returns 0 on success, or -1 on error; errno will be set | AnAddressOfNobodyHereIsMinusOne, ATakenPortIsMinusOneAndEaddrinuse, ASecondTimeIsMinusOneAndEinval, AFamilyThatIsNoneIsMinusOneAndEinval |
// | called before rdma_listen to bind to a specific port number | rdma_listen |
// | may be called on the active side before rdma_resolve_addr | clause rdma_resolve_addr.source |
// | port 0: the rdma_cm will select an available port | clause rdma_bind_addr.port-0, clause rdma_bind_addr.port-0 |
// | which can be retrieved with rdma_get_src_port | clause rdma_bind_addr.port-0 |
// | (nothing of the ports of TCP and UDP: rdma_cm's are its own) | APortOfTheMachinesSocketsIsFree, ABoundPortIsFreeForTheMachinesSockets |
// clang-format on
#include <sys/socket.h>
#include <unistd.h>

#include "id_test.h"

namespace verbena::pages {
namespace {

class RdmaBindAddr : public IdTest {
 protected:
  static int bind(const CmId& id, Address to) {
    errno = 0;
    return error_of(rdma_bind_addr(id.get(), to.get()));
  }
};

TEST_F(RdmaBindAddr, ASixthVersionAddressToo) {
  const std::string host = Address::of_device(AF_INET6);
  if (host.empty()) GTEST_SKIP() << "no IPv6 address on this machine";
  const CmId id = make_id();
  ASSERT_EQ(bind(id, Address(host, 0)), 0) << host;
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(text_of(rdma_get_local_addr(id.get())), host);
}

// Linux, rdma_translate_ip (addr.c): no interface of this machine has it.
TEST_F(RdmaBindAddr, AnAddressOfNobodyHereIsMinusOne) {
  EXPECT_EQ(bind(make_id(), Address("203.0.113.77", 0)), EADDRNOTAVAIL);
}

TEST_F(RdmaBindAddr, ATakenPortIsMinusOneAndEaddrinuse) {
  const CmId first = make_bound_id();
  EXPECT_EQ(bind(make_id(), address_of(first)), EADDRINUSE);
}

TEST_F(RdmaBindAddr, ASecondTimeIsMinusOneAndEinval) {
  const CmId id = make_bound_id();
  EXPECT_EQ(bind(id, address_), EINVAL);
}

TEST_F(RdmaBindAddr, AFamilyThatIsNoneIsMinusOneAndEinval) {
  Address address = address_;
  address.get()->sa_family = AF_UNIX;
  EXPECT_EQ(bind(make_id(), address), EINVAL);
}

struct Sockets {
  const char* name;
  int type;
  rdma_port_space space;
};
constexpr Sockets kSockets[] = {{"TCP", SOCK_STREAM, RDMA_PS_TCP}, {"UDP", SOCK_DGRAM, RDMA_PS_UDP}};

// A socket of the machine's, bound to `port` of `address`, and listening where that is a thing of its type.
class MachineSocket {
 public:
  MachineSocket(const Sockets& kind, Address address) : fd_(socket(address.get()->sa_family, kind.type, 0)) {
    bound_ = fd_ >= 0 && bind(fd_, address.get(), address.size()) == 0 &&
             (kind.type != SOCK_STREAM || listen(fd_, 1) == 0);
  }
  MachineSocket(const MachineSocket&) = delete;
  MachineSocket& operator=(const MachineSocket&) = delete;
  ~MachineSocket() { close(fd_); }

  bool bound() const { return bound_; }
  uint16_t port() const {
    sockaddr_in name = {};
    socklen_t size = sizeof name;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size), 0);
    return ntohs(name.sin_port);
  }

 private:
  int fd_;
  bool bound_;
};

// The port spaces of rdma_cm are its own (cma.c: cma_pernet_idr), apart from the machine's sockets.
TEST_F(RdmaBindAddr, APortOfTheMachinesSocketsIsFree) {
  for (const Sockets& kind : kSockets) {
    SCOPED_TRACE(kind.name);
    const MachineSocket taken(kind, address_);
    ASSERT_TRUE(taken.bound()) << strerror(errno);
    const CmId id = make_id(kind.space);
    ASSERT_EQ(bind(id, address_.with_port(taken.port())), 0);
    EXPECT_EQ(port_of(id), taken.port());
    EXPECT_EQ(rdma_listen(id.get(), 1), 0) << strerror(errno);
  }
}

TEST_F(RdmaBindAddr, ABoundPortIsFreeForTheMachinesSockets) {
  for (const Sockets& kind : kSockets) {
    SCOPED_TRACE(kind.name);
    uint16_t port;
    {
      const MachineSocket chooses(kind, address_);  // one that no program of the machine has
      port = chooses.port();
    }
    const CmId listener = make_id(kind.space);
    ASSERT_EQ(bind(listener, address_.with_port(port)), 0);
    ASSERT_EQ(rdma_listen(listener.get(), 1), 0) << strerror(errno);
    EXPECT_TRUE(MachineSocket(kind, address_.with_port(port)).bound()) << strerror(errno);
  }
}

}  // namespace
}  // namespace verbena::pages
