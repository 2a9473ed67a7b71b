// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_listen(3), sentence by sentence.
//
// | the page says | case |
// | --- | --- |
// | initiates a listen for incoming connection requests | ConnectionRequestsArrive |
// | or datagram service lookup | DatagramLookupsArrive |
// | restricted to the locally bound source address | OnAnAddressRequestsToAnotherDoNotArrive |
// | returns 0 on success, or -1 on error; errno will be set | ASecondTimeIsMinusOneAndEinval,
// AfterConnectingIsMinusOneAndEinval | | must have bound the id by rdma_bind_addr |
// WithoutAnAddressItBindsToAPortByItself, as Linux does | | bound to a specific IP address: restricted to
// that and the associated device | OnAnAddressRequestsToAnotherDoNotArrive | | bound to a port number only:
// across all RDMA devices | OnAWildcardRequestsToAnyAddressArrive |
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaListen : public AsyncTest {
 protected:
  // What the caller of `address` is told.
  std::string call(Address address, rdma_port_space space = RDMA_PS_TCP) {
    active_ = make_id(space, active_channel_.get());
    if (rdma_resolve_addr(active_.get(), nullptr, address.get(), kResolveMs) != 0) return strerror(errno);
    const std::string resolved = next_name(active_channel_.get());
    if (resolved != "RDMA_CM_EVENT_ADDR_RESOLVED") return resolved;
    EXPECT_EQ(rdma_resolve_route(active_.get(), kResolveMs), 0);
    EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
    rdma_conn_param parameters = parameters_with();
    EXPECT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
    return "called";
  }
};

TEST_F(RdmaListen, ConnectionRequestsArrive) {
  ASSERT_EQ(call(address_of(listener_)), "called");
  EXPECT_EQ(take_request()->listen_id, listener_.get());
}

TEST_F(RdmaListen, DatagramLookupsArrive) {
  listener_ = make_listener(RDMA_PS_UDP, passive_channel_.get());
  ASSERT_EQ(call(address_of(listener_), RDMA_PS_UDP), "called");
  EXPECT_EQ(take_request()->listen_id, listener_.get());
}

TEST_F(RdmaListen, OnAnAddressRequestsToAnotherDoNotArrive) {
  const std::string other = Address::of_device(AF_INET6);
  if (other.empty()) GTEST_SKIP() << "the device has one address only";
  ASSERT_EQ(call(Address(other, port_of(listener_))), "called");
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_REJECTED");
  EXPECT_FALSE(has_event(passive_channel_));
}

TEST_F(RdmaListen, OnAWildcardRequestsToAnyAddressArrive) {
  listener_ = make_id(RDMA_PS_TCP, passive_channel_.get());
  Address any("0.0.0.0", 0);
  ASSERT_EQ(rdma_bind_addr(listener_.get(), any.get()), 0);
  ASSERT_EQ(rdma_listen(listener_.get(), 1), 0);
  ASSERT_EQ(call(address_of(listener_)), "called");
  EXPECT_EQ(take_request()->listen_id, listener_.get());
  EXPECT_EQ(text_of(rdma_get_local_addr(passive_.get())), host_)
      << "the new id has the address that was called";
}

TEST_F(RdmaListen, ASecondTimeIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_listen(listener_.get(), 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaListen, AfterConnectingIsMinusOneAndEinval) {
  establish();
  errno = 0;
  EXPECT_EQ(rdma_listen(active_.get(), 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

// rdma_listen in Linux (cma.c): an idle id is bound to the IPv4 wildcard and a port of the library's choice.
TEST_F(RdmaListen, WithoutAnAddressItBindsToAPortByItself) {
  const CmId id = make_id();
  ASSERT_EQ(rdma_listen(id.get(), 1), 0) << strerror(errno);
  EXPECT_NE(port_of(id), 0);
}

}  // namespace
}  // namespace verbena::pages
