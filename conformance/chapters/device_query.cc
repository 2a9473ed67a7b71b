// SPDX-License-Identifier: BSD-2-Clause
//
// Device and port: what the queries report, and whether it is consistent.
#include <string.h>
#include <unistd.h>

#include <limits>
#include <set>
#include <string>

#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::device_query_chapter {
namespace {

using Fixture = DeviceTest;

CONFORMANCE_TEST(device, QueryGivesTheSameTwice, "ibv_query_device.zero", "ibv_query_device.stable",
                 "ibv_query_device.fw-ver") {
  ibv_device_attr first = {}, second = {};
  EXPECT_SUCCEEDS(ibv_query_device(context(), &first));
  EXPECT_SUCCEEDS(ibv_query_device(context(), &second));
  const About stable("ibv_query_device.stable");
  EXPECT_EQ(first.node_guid, second.node_guid);
  EXPECT_EQ(first.max_qp, second.max_qp);
  EXPECT_EQ(first.max_qp_wr, second.max_qp_wr);
  EXPECT_EQ(first.max_mr_size, second.max_mr_size);
  EXPECT_EQ(first.device_cap_flags, second.device_cap_flags);
  EXPECT_EQ(first.phys_port_cnt, second.phys_port_cnt);
  EXPECT_STREQ(first.fw_ver, second.fw_ver);
  const About version("ibv_query_device.fw-ver");
  EXPECT_LT(strnlen(first.fw_ver, sizeof first.fw_ver), sizeof first.fw_ver);
}

CONFORMANCE_TEST(device, LimitsArePositive, "ibv_query_device.limits-positive") {
  const ibv_device_attr& d = device().attributes();
  EXPECT_GE(d.max_qp, 1);
  EXPECT_GE(d.max_cq, 1);
  EXPECT_GE(d.max_pd, 1);
  EXPECT_GE(d.max_mr, 1);
  EXPECT_GE(d.max_cqe, 1);
  EXPECT_GE(d.max_qp_wr, 1);
  EXPECT_GE(d.max_sge, 1);
  EXPECT_GE(d.max_mr_size, 1u);
}

CONFORMANCE_TEST(device, PageSizeIsTheSystems, "ibv_query_device.page-size") {
  const uint64_t up_to = (static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) << 1) - 1;
  EXPECT_NE(device().attributes().page_size_cap & up_to, 0u) << "page size " << sysconf(_SC_PAGESIZE);
}

CONFORMANCE_TEST(device, AtomicLevelIsOfTheEnumeration, "ibv_query_device.atomic-cap") {
  const ibv_atomic_cap level = device().attributes().atomic_cap;
  EXPECT_TRUE(level == IBV_ATOMIC_NONE || level == IBV_ATOMIC_HCA || level == IBV_ATOMIC_GLOB) << level;
}

CONFORMANCE_TEST(device, MulticastLimitsFitTogether, "ibv_query_device.mcast-consistent") {
  const ibv_device_attr& d = device().attributes();
  if (d.max_mcast_grp == 0 && d.max_total_mcast_qp_attach == 0) throw NotClaimed{"max_mcast_grp is 0"};
  EXPECT_GE(d.max_mcast_grp, 1);
  EXPECT_GE(d.max_mcast_qp_attach, 1);
  EXPECT_GE(d.max_total_mcast_qp_attach, d.max_mcast_qp_attach);
}

CONFORMANCE_TEST(device, ReadAndAtomicLimitsFitTogether, "ibv_query_device.rd-atom-consistent") {
  if (device().attributes().max_res_rd_atom == 0) throw NotClaimed{"max_res_rd_atom is 0"};
  EXPECT_GE(device().attributes().max_res_rd_atom, device().attributes().max_qp_rd_atom);
}

CONFORMANCE_TEST(device, MoreThanTheMaximumIsRefused, "ibv_query_device.max-not-exceeded") {
  const ibv_device_attr& d = device().attributes();
  if (d.max_cqe < std::numeric_limits<int>::max()) {
    const Cq cq(CALL(ibv_create_cq(context(), d.max_cqe + 1, nullptr, nullptr, 0)));
    if (cq) {
      EXPECT_GT(cq->cqe, d.max_cqe) << "max_cqe + 1";
    }
  }
  const Pd pd = make_pd(device());
  const Cq small = make_cq(device());
  QpSpec spec;
  spec.send_depth = static_cast<uint32_t>(d.max_qp_wr) + 1;
  ibv_qp_init_attr attr = init_attributes(spec, small, small);
  const Qp qp(CALL(ibv_create_qp(pd, &attr)));
  if (qp) {
    EXPECT_GE(attr.cap.max_send_wr, spec.send_depth) << "max_qp_wr + 1";
  }
}

CONFORMANCE_TEST(device, ExtendedQueryAgrees, "ibv_query_device_ex.zero", "ibv_query_device_ex.orig",
                 "ibv_query_device_ex.ports") {
  ibv_device_attr plain = {};
  ibv_device_attr_ex extended = {};
  EXPECT_SUCCEEDS(ibv_query_device(context(), &plain));
  EXPECT_SUCCEEDS(ibv_query_device_ex(context(), nullptr, &extended));
  const About orig("ibv_query_device_ex.orig");
  const ibv_device_attr& o = extended.orig_attr;
  EXPECT_STREQ(o.fw_ver, plain.fw_ver);
  EXPECT_EQ(o.node_guid, plain.node_guid);
  EXPECT_EQ(o.sys_image_guid, plain.sys_image_guid);
  EXPECT_EQ(o.max_mr_size, plain.max_mr_size);
  EXPECT_EQ(o.page_size_cap, plain.page_size_cap);
  EXPECT_EQ(o.max_qp_wr, plain.max_qp_wr);
  EXPECT_EQ(o.device_cap_flags, plain.device_cap_flags);
  EXPECT_EQ(o.max_sge, plain.max_sge);
  EXPECT_EQ(o.max_cqe, plain.max_cqe);
  // Numbers of objects may be what is left of them now; the kernel keeps those of ibv_query_device.
  EXPECT_LE(o.max_qp, plain.max_qp);
  EXPECT_LE(o.max_cq, plain.max_cq);
  EXPECT_LE(o.max_mr, plain.max_mr);
  EXPECT_LE(o.max_pd, plain.max_pd);
  EXPECT_EQ(o.max_qp_rd_atom, plain.max_qp_rd_atom);
  EXPECT_EQ(o.atomic_cap, plain.atomic_cap);
  EXPECT_LE(o.max_mw, plain.max_mw);
  EXPECT_LE(o.max_ah, plain.max_ah);
  EXPECT_LE(o.max_srq, plain.max_srq);
  EXPECT_EQ(o.max_srq_wr, plain.max_srq_wr);
  EXPECT_EQ(o.phys_port_cnt, plain.phys_port_cnt);
  const About ports("ibv_query_device_ex.ports");
  if (extended.phys_port_cnt_ex != 0) {
    EXPECT_GE(extended.phys_port_cnt_ex, plain.phys_port_cnt);
  }
}

CONFORMANCE_TEST(device, OnDemandPagingBitsFitTogether, "ibv_query_device_ex.odp-consistent") {
  const auto& caps = device().extended().odp_caps;
  const auto& transports = caps.per_transport_caps;
  const bool implicit = (caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0;
  const bool any =
      implicit || (transports.rc_odp_caps | transports.uc_odp_caps | transports.ud_odp_caps) != 0;
  const bool general = (caps.general_caps & IBV_ODP_SUPPORT) != 0;
  if (!any && !general) throw NotClaimed{"no bit of on-demand paging is set"};
  EXPECT_TRUE(general) << "general_caps " << caps.general_caps;
}

CONFORMANCE_TEST(device, TimestampsHaveAClock, "ibv_query_device_ex.clock-consistent") {
  if (device().extended().completion_timestamp_mask == 0) throw NotClaimed{"completion_timestamp_mask is 0"};
  const uint64_t frequency = device().extended().hca_core_clock;
  observe("ibv_query_device_ex.clock-consistent",
          frequency == 0 ? "no frequency" : std::to_string(frequency) + " kHz");
}

ibv_values_ex raw_clock(ibv_context* context) {
  ibv_values_ex values = {};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  const int error = CALL(ibv_query_rt_values_ex(context, &values));
  if (is_refusal(error)) throw NotClaimed{"ibv_query_rt_values_ex refused with " + errno_text(error)};
  if (error != 0) throw Deviation{"expected: 0; seen: " + errno_text(error), Where::current()};
  return values;
}

CONFORMANCE_TEST(device, RawClockAdvances, "ibv_query_rt_values_ex.raw-clock",
                 "ibv_query_rt_values_ex.advances", "ibv_query_rt_values_ex.mask") {
  const ibv_values_ex first = raw_clock(context());
  ABOUT("ibv_query_rt_values_ex.mask")
  EXPECT_EQ(first.comp_mask, static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK));
  const auto ticks = [](const ibv_values_ex& v) {
    return static_cast<uint64_t>(v.raw_clock.tv_sec) * 1000000000u +
           static_cast<uint64_t>(v.raw_clock.tv_nsec);
  };
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(2));
  ibv_values_ex second = raw_clock(context());
  while (ticks(second) <= ticks(first) && std::chrono::steady_clock::now() < deadline)
    second = raw_clock(context());
  ABOUT("ibv_query_rt_values_ex.advances") EXPECT_GT(ticks(second), ticks(first));
}

CONFORMANCE_TEST(device, EveryPortCanBeQueried, "ibv_query_device.ports", "ibv_query_port.zero") {
  // A port that cannot be queried breaks both promises.
  for (int port = 1; port <= device().attributes().phys_port_cnt; ++port) {
    ibv_port_attr attr;
    EXPECT_SUCCEEDS(ibv_query_port(context(), static_cast<uint8_t>(port), &attr)) << "port " << port;
  }
}

CONFORMANCE_TEST(device, PortsThatDoNotExistAreRefused, "ibv_query_port.port-range") {
  ibv_port_attr attr;
  EXPECT_REFUSED(ibv_query_port(context(), 0, &attr));
  const int count = device().attributes().phys_port_cnt;
  if (count < 255) {
    EXPECT_REFUSED(ibv_query_port(context(), static_cast<uint8_t>(count + 1), &attr));
  }
}

CONFORMANCE_TEST(device, PortAttributesAreOfTheEnumerations, "ibv_query_port.state", "ibv_query_port.mtu",
                 "ibv_query_port.max-msg-sz", "ibv_query_port.link-layer") {
  const ibv_port_attr& port = device().port();
  ABOUT("ibv_query_port.state") {
    EXPECT_GE(port.state, IBV_PORT_NOP);
    EXPECT_LE(port.state, IBV_PORT_ACTIVE_DEFER);
  }
  ABOUT("ibv_query_port.mtu") {
    EXPECT_GE(port.active_mtu, IBV_MTU_256);
    EXPECT_LE(port.active_mtu, port.max_mtu);
    EXPECT_LE(port.max_mtu, IBV_MTU_4096);
  }
  ABOUT("ibv_query_port.max-msg-sz") EXPECT_GE(port.max_msg_sz, 128u << port.active_mtu);
  ABOUT("ibv_query_port.link-layer") EXPECT_LE(port.link_layer, IBV_LINK_LAYER_ETHERNET);
}

CONFORMANCE_TEST(device, ActivePortHasAWidthASpeedAndALink, "ibv_query_port.width-speed",
                 "ibv_query_port.phys-state") {
  const ibv_port_attr& port = device().port();
  const std::set<int> widths = {1, 2, 4, 8, 16};
  ABOUT("ibv_query_port.width-speed") {
    EXPECT_TRUE(widths.contains(port.active_width)) << static_cast<int>(port.active_width);
    EXPECT_NE(port.active_speed, 0);
  }
  ABOUT("ibv_query_port.phys-state") EXPECT_EQ(port.phys_state, 5);
}

// An Omni-Path port has a GID with its LID, under a prefix of its own (Linux include/rdma/opa_addr.h,
// OPA_MAKE_ID()). From 0xC000 on ibv_query_port cannot tell that LID: OPA_TO_IB_UCAST_LID() makes 0 of it.
bool has_long_lid(const Device& device) {
  for (int index = 0; index < device.port().gid_tbl_len; ++index) {
    ibv_gid gid = {};
    if (ibv_query_gid(device.context(), device.port_number(), index, &gid) != 0) break;
    const uint8_t* const id = gid.raw + 8;
    const uint32_t lid = uint32_t{id[4]} << 24 | uint32_t{id[5]} << 16 | uint32_t{id[6]} << 8 | id[7];
    if (id[0] == 0x00 && id[1] == 0x06 && id[2] == 0x6a && lid >= 0xc000) return true;
  }
  return false;
}

CONFORMANCE_TEST(device, ActiveInfiniBandPortHasALid, "ibv_query_port.lid") {
  if (device().port().link_layer != IBV_LINK_LAYER_INFINIBAND)
    throw NotClaimed{"the port's link layer is not InfiniBand"};
  if (device().port().lid == 0 && has_long_lid(device()))
    throw NotClaimed{"an Omni-Path port, whose LID has more than 16 bits: it is told as 0"};
  // Such a port, of a virtual function say, is reached by its GID.
  if (device().port().lid == 0 && (device().port().flags & IBV_QPF_GRH_REQUIRED) != 0)
    throw NotClaimed{"the port has no LID, and needs a GRH"};
  EXPECT_GE(device().port().lid, 1);
  EXPECT_LE(device().port().lid, 0xbfff);
}

CONFORMANCE_TEST(device, TablesAreAsLongAsThePortSays, "ibv_query_port.gid-table",
                 "ibv_query_port.pkey-table") {
  const ibv_port_attr& port = device().port();
  ibv_gid gid;
  EXPECT_GE(port.gid_tbl_len, 1);
  EXPECT_EQ(CALL(ibv_query_gid(context(), device().port_number(), port.gid_tbl_len, &gid)), -1);
  const About keys("ibv_query_port.pkey-table");
  uint16_t pkey;
  for (int index = 0; index < port.pkey_tbl_len; ++index)
    EXPECT_EQ(CALL(ibv_query_pkey(context(), device().port_number(), index, &pkey)), 0) << "index " << index;
  EXPECT_EQ(CALL(ibv_query_pkey(context(), device().port_number(), port.pkey_tbl_len, &pkey)), -1);
}

CONFORMANCE_TEST(device, PortQueryGivesTheSameTwice, "ibv_query_port.stable") {
  ibv_port_attr port = {};
  EXPECT_SUCCEEDS(ibv_query_port(context(), device().port_number(), &port));
  EXPECT_EQ(port.state, device().port().state);
  EXPECT_EQ(port.active_mtu, device().port().active_mtu);
  EXPECT_EQ(port.lid, device().port().lid);
  EXPECT_EQ(port.link_layer, device().port().link_layer);
  EXPECT_EQ(port.gid_tbl_len, device().port().gid_tbl_len);
  EXPECT_EQ(port.pkey_tbl_len, device().port().pkey_tbl_len);
}

CONFORMANCE_TEST(device, GrhIsRequiredWhereThePortSaysSo, "ibv_query_port.grh-required") {
  if ((device().port().flags & IBV_QPF_GRH_REQUIRED) == 0)
    throw NotClaimed{"the port does not set IBV_QPF_GRH_REQUIRED"};
  const Pd pd = make_pd(device());
  ibv_ah_attr address = device().own_address();
  address.is_global = 0;
  const Ah ah(CALL(ibv_create_ah(pd, &address)));
  EXPECT_EQ(ah, nullptr);  // ibv_create_ah(3) promises null, and no errno value
}

CONFORMANCE_TEST(device, EventsAndStatesHaveTexts, "ibv_event_type_str.event", "ibv_event_type_str.node",
                 "ibv_event_type_str.port") {
  std::set<std::string> events, states;
  for (int event = IBV_EVENT_CQ_ERR; event <= IBV_EVENT_WQ_FATAL; ++event)
    events.insert(ibv_event_type_str(static_cast<ibv_event_type>(event)));
  ABOUT("ibv_event_type_str.event") {
    EXPECT_EQ(events.size(), static_cast<size_t>(IBV_EVENT_WQ_FATAL - IBV_EVENT_CQ_ERR + 1));
  }
  for (int node = IBV_NODE_CA; node <= IBV_NODE_UNSPECIFIED; ++node)
    ABOUT("ibv_event_type_str.node") EXPECT_STRNE(ibv_node_type_str(static_cast<ibv_node_type>(node)), "");
  for (int state = IBV_PORT_NOP; state <= IBV_PORT_ACTIVE_DEFER; ++state)
    states.insert(ibv_port_state_str(static_cast<ibv_port_state>(state)));
  const About about("ibv_event_type_str.port");
  EXPECT_EQ(states.size(), static_cast<size_t>(IBV_PORT_ACTIVE_DEFER - IBV_PORT_NOP + 1));
}

CONFORMANCE_TEST(device, RatesConvertBothWays, "ibv_rate_to_mbps.5gbps", "ibv_rate_to_mbps.inverse",
                 "ibv_rate_to_mult.5gbps", "ibv_rate_to_mult.inverse") {
  EXPECT_EQ(CALL(ibv_rate_to_mbps(IBV_RATE_5_GBPS)), 5000);
  EXPECT_EQ(CALL(ibv_rate_to_mult(IBV_RATE_5_GBPS)), 2);
  for (int number = IBV_RATE_2_5_GBPS; number <= IBV_RATE_1200_GBPS; ++number) {
    const ibv_rate rate = static_cast<ibv_rate>(number);
    {
      const About mbps("ibv_rate_to_mbps.inverse");
      EXPECT_EQ(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate) << ibv_rate_to_mbps(rate) << " Mbit/s";
    }
    const int mult = ibv_rate_to_mult(rate);
    const About inverse("ibv_rate_to_mult.inverse");
    if (mult > 0) {
      EXPECT_EQ(mult_to_ibv_rate(mult), rate) << mult;
    }
  }
}

}  // namespace
}  // namespace conformance::device_query_chapter
