// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast groups.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <vector>

#include "support/ends.h"
#include "support/fixture.h"

namespace conformance {
namespace {

class Fixture : public DeviceTest {
 protected:
  Ends& ends() {
    if (device().attributes().max_mcast_grp == 0) throw NotClaimed{"max_mcast_grp is 0"};
    if (!ends_) {
      EndsSpec spec;
      spec.qp.type = IBV_QPT_UD;
      ends_.emplace(device(), spec);
    }
    return *ends_;
  }
  End& near() { return ends().near; }
  End& far() { return ends().far; }

  void TearDown() override {
    for (const int socket : joined_) close(socket);
  }

  // A group of the family of the port's GID: datagrams of RoCE v2 are of IPv4 where that one is, and so is
  // their group's address (Linux drivers/infiniband/core/cma.c, cma_iboe_set_mgid()). Of a small scope, so
  // that nothing leaves the machine's own network.
  ibv_gid group(uint8_t number) {
    ibv_gid gid = {};
    if (is_ipv4()) {
      const uint8_t address[] = {0xff, 0xff, 239, 255, 0x5a, number};
      std::memcpy(&gid.raw[10], address, sizeof address);
    } else {
      gid.raw[0] = 0xff;
      gid.raw[1] = 0x12;
      gid.raw[14] = 0x5a;
      gid.raw[15] = number;
    }
    return gid;
  }
  bool is_ipv4() { return IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(device().gid().raw)) != 0; }

  // "A join request for the multicast group must be sent" (ibv_attach_mcast(3), NOTES): on Ethernet that is
  // the membership of the interface behind the GID. Where there is none, the device may deliver all the same.
  void join(const ibv_gid& gid) {
    if (!device().is_ethernet()) return;
    const int socket = ::socket(is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return;
    joined_.push_back(socket);
    if (is_ipv4()) {
      ip_mreq request = {};
      std::memcpy(&request.imr_multiaddr, &gid.raw[12], 4);
      std::memcpy(&request.imr_interface, &device().gid().raw[12], 4);
      CALL(setsockopt(socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request));
      return;
    }
    ibv_gid_entry entry = {};
    if (ibv_query_gid_ex(context(), device().port_number(), device().gid_index(), &entry, 0) != 0) return;
    ipv6_mreq request = {};
    std::memcpy(&request.ipv6mr_multiaddr, gid.raw, 16);
    request.ipv6mr_interface = entry.ndev_ifindex;
    CALL(setsockopt(socket, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request));
  }
  static constexpr uint16_t lid = 0xc05a;

  void send(const ibv_gid& to) {
    ibv_ah_attr address = device().own_address();
    address.is_global = 1;
    address.dlid = lid;
    address.grh.dgid = to;
    address.grh.sgid_index = device().gid_index();
    address.grh.hop_limit = 1;
    ah_ = Ah(CALL(ibv_create_ah(near().pd, &address)));
    ASSERT_NE(ah_, nullptr) << "errno " << errno_text(errno);
    ibv_sge element = near().sge(1000, 8);
    ibv_send_wr wr = near().request(IBV_WR_SEND, &element);
    wr.wr.ud = {ah_, 0xffffff, near().qkey};
    ASSERT_TRUE(succeeded(near().post(wr)));
    EXPECT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
  }

 private:
  std::optional<Ends> ends_;
  Ah ah_;
  std::vector<int> joined_;  // sockets: closing one leaves its group
};

CONFORMANCE_TEST(mcast, AttachesAndDetaches, "ibv_attach_mcast.zero", "ibv_detach_mcast.zero",
                 "ibv_detach_mcast.absent") {
  const ibv_gid gid = group(1);
  EXPECT_SUCCEEDS(ibv_attach_mcast(far().qp, &gid, lid));
  EXPECT_SUCCEEDS(ibv_detach_mcast(far().qp, &gid, lid));
  const About about("ibv_detach_mcast.absent");
  EXPECT_REFUSED(ibv_detach_mcast(far().qp, &gid, lid));
}

CONFORMANCE_TEST(mcast, NonsenseIsRefused, "ibv_attach_mcast.ud-only", "ibv_attach_mcast.not-multicast") {
  ends();
  const ibv_gid gid = group(2);
  {
    const About about("ibv_attach_mcast.ud-only");
    const Qp connected = make_qp(near().pd, near().cq);
    EXPECT_REFUSED(ibv_attach_mcast(connected, &gid, lid));
  }
  const About about("ibv_attach_mcast.not-multicast");
  const ibv_gid own = device().gid();
  EXPECT_REFUSED(ibv_attach_mcast(far().qp, &own, lid));
}

CONFORMANCE_TEST(mcast, MembersReceiveOthersDoNot, "ibv_attach_mcast.delivers",
                 "ibv_attach_mcast.other-group", "ibv_detach_mcast.ends") {
  const ibv_gid gid = group(3), another = group(4);
  EndsSpec spec;
  spec.qp.type = IBV_QPT_UD;
  Ends more(device(), spec);
  for (const ibv_gid& each : {gid, another}) join(each);
  ASSERT_SUCCEEDS(ibv_attach_mcast(far().qp, &gid, lid));
  ASSERT_SUCCEEDS(ibv_attach_mcast(more.near.qp, &gid, lid));
  ASSERT_SUCCEEDS(ibv_attach_mcast(more.far.qp, &another, lid));
  for (End* end : {&far(), &more.near, &more.far}) ASSERT_TRUE(succeeded(end->post_receive(0, 256)));
  near().buffer[1000] = 0x77;
  send(gid);
  for (End* end : {&far(), &more.near}) {
    EXPECT_EQ(completion(end->cq).src_qp, near().qp->qp_num);
    EXPECT_EQ(end->buffer[40], 0x77);
  }
  {
    const About about("ibv_attach_mcast.other-group");
    EXPECT_TRUE(stays_empty(more.far.cq));
  }
  const About about("ibv_detach_mcast.ends");
  EXPECT_SUCCEEDS(ibv_detach_mcast(far().qp, &gid, lid));
  ASSERT_TRUE(succeeded(far().post_receive(0, 256)));
  ASSERT_TRUE(succeeded(more.near.post_receive(0, 256)));
  send(gid);
  EXPECT_EQ(completion(more.near.cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(stays_empty(far().cq));
  EXPECT_SUCCEEDS(ibv_detach_mcast(more.near.qp, &gid, lid));
  EXPECT_SUCCEEDS(ibv_detach_mcast(more.far.qp, &another, lid));
}

CONFORMANCE_TEST(mcast, OneCopyForEach, "ibv_attach_mcast.single-copy") {
  const ibv_gid gid = group(5);
  join(gid);
  ASSERT_SUCCEEDS(ibv_attach_mcast(far().qp, &gid, lid));
  const int again = CALL(ibv_attach_mcast(far().qp, &gid, lid));  // may be refused, too
  ASSERT_TRUE(succeeded(far().post_receive(0, 256)));
  ASSERT_TRUE(succeeded(far().post_receive(256, 256)));
  send(gid);
  EXPECT_EQ(completion(far().cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(stays_empty(far().cq));
  EXPECT_SUCCEEDS(ibv_detach_mcast(far().qp, &gid, lid));
  if (again == 0) CALL(ibv_detach_mcast(far().qp, &gid, lid));
}

CONFORMANCE_TEST(mcast, OwnMessagesAreKeptAway, "ibv_create_qp_ex.block-self") {
  const ibv_gid gid = group(6);
  join(gid);
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_UD;
  attr.send_cq = attr.recv_cq = near().cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = near().pd;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  Qp blocking(CALL(ibv_create_qp_ex(context(), &attr)));
  if (!blocking && is_refusal(errno)) throw NotClaimed{"such a QP is refused with " + errno_text(errno)};
  ASSERT_NE(blocking, nullptr) << "errno " << errno_text(errno);
  bring_to(blocking, IBV_QPS_RTS, attributes_for(device(), {}));
  near().qp = std::move(blocking);
  for (End* end : {&near(), &far()}) {
    ASSERT_SUCCEEDS(ibv_attach_mcast(end->qp, &gid, lid));
    ASSERT_TRUE(succeeded(end->post_receive(0, 256)));
  }
  send(gid);
  EXPECT_EQ(completion(far().cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(stays_empty(near().cq));
  for (End* end : {&near(), &far()}) EXPECT_SUCCEEDS(ibv_detach_mcast(end->qp, &gid, lid));
}

}  // namespace
}  // namespace conformance
