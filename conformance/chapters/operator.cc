// SPDX-License-Identifier: BSD-2-Clause
//
// Events that an operator causes (support/operator_event.h): link, addresses, reset.
#include <infiniband/verbs.h>
#include <poll.h>

#include <cstring>
#include <string>

#include "support/cm.h"
#include "support/operator_event.h"
#include "support/pair.h"

namespace conformance::operator_chapter {
namespace {

// A human being may do it: what is waited for comes late.
constexpr Traits by_operator = Traits().alone().limit(150);

class AsyncTest : public PairTest {
 protected:
  // The next event of this type; others before it are dropped. Of the device it has no element.
  ibv_async_event wait_for(ibv_event_type type) {
    const auto deadline = std::chrono::steady_clock::now() + operator_time();
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd waiting{context()->async_fd, POLLIN, 0};
      if (poll(&waiting, 1, 50) != 1) continue;
      ibv_async_event event = {};
      if (ibv_get_async_event(context(), &event) != 0) continue;
      trace(std::string("ibv_get_async_event: ") + ibv_event_type_str(event.event_type));
      ibv_ack_async_event(&event);
      if (event.event_type == type) return event;
    }
    throw Deviation{std::string("expected: the event '") + ibv_event_type_str(type) + "'; seen: none",
                    Where::current()};
  }
  ibv_port_state port_state() {
    ibv_port_attr attr = {};
    EXPECT_SUCCEEDS(ibv_query_port(context(), device().port_number(), &attr));
    return attr.state;
  }
  // The event may be raised when the link is asked for, before it is there.
  ibv_port_state port_state(ibv_port_state awaited) {
    const auto deadline = std::chrono::steady_clock::now() + operator_time();
    ibv_port_attr attr = {};
    while (ibv_query_port(context(), device().port_number(), &attr) == 0 && attr.state != awaited &&
           std::chrono::steady_clock::now() < deadline)
      give_way();
    return port_state();
  }
  // The event is a capability (IBV_DEVICE_PORT_ACTIVE_EVENT): without it there may be none.
  ibv_async_event wait_for_active() {
    try {
      return wait_for(IBV_EVENT_PORT_ACTIVE);
    } catch (const Deviation&) {
      if ((device().attributes().device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT) != 0) throw;
      throw NotClaimed{"device_cap_flags has no PORT_ACTIVE_EVENT, and none comes"};
    }
  }
  // Is the GID there that the run uses? On Ethernet it is an address of the machine's interface, and an
  // interface that is set down keeps no IPv6 addresses (Linux Documentation/networking/ip-sysctl.rst,
  // keep_addr_on_down). A person who brings it up may add them a moment later.
  bool has_gid() {
    const auto deadline = std::chrono::steady_clock::now() + operator_time();
    for (;;) {
      ibv_gid gid = {};
      if (ibv_query_gid(context(), device().port_number(), device().gid_index(), &gid) == 0 &&
          memcmp(gid.raw, device().gid().raw, sizeof gid.raw) == 0)
        return true;
      if (std::chrono::steady_clock::now() >= deadline) return false;
      give_way();
    }
  }
  // The status of a message of a new connection. A switch may forward nothing at first.
  ibv_wc_status message() {
    const auto deadline = std::chrono::steady_clock::now() + operator_time();
    for (;;) {
      new_pair();
      if (far().receive(0, 64) != 0 || near().post(send_request({{0, 8}})) != 0)
        throw Deviation{"requests of a new connection; expected: taken; seen: refused", Where::current()};
      const ibv_wc_status status = near().completion().status;
      if (status != IBV_WC_RETRY_EXC_ERR || std::chrono::steady_clock::now() >= deadline) return status;
    }
  }
  bool carries_messages() {
    try {
      return message() == IBV_WC_SUCCESS;
    } catch (const Deviation&) {
      return false;
    } catch (const NotClaimed&) {  // of what it has had before
      return false;
    }
  }
  void expect_port(const ibv_async_event& event) {
    const About about("ibv_get_async_event.port");
    EXPECT_EQ(event.element.port_num, device().port_number());
  }
};

namespace verbs {
using Fixture = AsyncTest;

CONFORMANCE_TEST_AS(by_operator, async, LinkGoesDownAndComesBack, "ibv_get_async_event.port-err",
                    "ibv_get_async_event.port-active", "ibv_get_async_event.port") {
  pair();
  LinkDown down(device());
  ABOUT("ibv_get_async_event.port-err") {
    expect_port(wait_for(IBV_EVENT_PORT_ERR));
    EXPECT_NE(port_state(), IBV_PORT_ACTIVE);
  }
  down.bring_back();
  const About about("ibv_get_async_event.port-active");
  expect_port(wait_for_active());
  EXPECT_EQ(port_state(IBV_PORT_ACTIVE), IBV_PORT_ACTIVE);
  if (device().is_ethernet() && !has_gid()) {
    not_tested("the port's address has not come back with its link");
    return;
  }
  // Of a new connection: no page promises that one outlives its link.
  const ibv_wc_status status = message();
  EXPECT_EQ(status, IBV_WC_SUCCESS) << ibv_wc_status_str(status);
  if (status == IBV_WC_SUCCESS) {
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  }
}

CONFORMANCE_TEST_AS(by_operator, async, AddressesChange, "ibv_get_async_event.gid-change",
                    "ibv_get_async_event.port") {
  pair();
  cause(OperatorEvent::gid_change, device());
  ABOUT("ibv_get_async_event.gid-change") expect_port(wait_for(IBV_EVENT_GID_CHANGE));
}

// A reset need not be fatal, nor of this part of the adapter: a device that carries messages is in no fatal
// state.
CONFORMANCE_TEST_AS(by_operator, async, DeviceIsReset, "ibv_get_async_event.device-fatal") {
  pair();
  cause(OperatorEvent::reset, device());
  try {
    wait_for(IBV_EVENT_DEVICE_FATAL);
  } catch (const Deviation&) {
    if (!carries_messages()) throw;
    throw NotTested{"the reset has put the device into no fatal state: it carries messages"};
  }
}

}  // namespace verbs

// An id that is bound to the device, and an event for it.
class IdTest : public CmTest {
 protected:
  bool comes() {
    pollfd waiting{channel()->fd, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(operator_time().count())) == 1;
  }
  void expect(rdma_cm_event_type type) {
    ASSERT_TRUE(comes()) << "no event";
    const CmEvent event = next_event(channel(), type);
    EXPECT_EQ(event->id, near_.get());
  }
};

namespace ids {
using Fixture = IdTest;

CONFORMANCE_TEST_AS(by_operator, cm_connect, HardwareAddressChanges, "rdma_get_cm_event.addr-change") {
  near_ = make_bound();
  cause(OperatorEvent::address_change, device());
  expect(RDMA_CM_EVENT_ADDR_CHANGE);
}

CONFORMANCE_TEST_AS(by_operator, cm_connect, DeviceIsRemoved, "rdma_get_cm_event.device-removal") {
  near_ = make_bound();
  cause(OperatorEvent::reset, device());
  // A reset need not remove the device: then its contexts live on.
  if (!comes()) {
    ibv_port_attr attr = {};
    if (ibv_query_port(context(), device().port_number(), &attr) == 0)
      throw NotTested{"the reset has not removed the device"};
    throw Deviation{"expected: an event; seen: none", Where::current()};
  }
  expect(RDMA_CM_EVENT_DEVICE_REMOVAL);
}

}  // namespace ids

}  // namespace
}  // namespace conformance::operator_chapter
