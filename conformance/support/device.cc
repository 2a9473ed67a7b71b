// SPDX-License-Identifier: BSD-2-Clause
#include "support/device.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include <cerrno>
#include <memory>
#include <stdexcept>

#include "suite/trace.h"

namespace conformance {
namespace {

struct FreeList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
using DeviceList = std::unique_ptr<ibv_device*, FreeList>;

bool has_active_port(ibv_context* context) {
  ibv_device_attr attributes;
  if (ibv_query_device(context, &attributes) != 0) return false;
  for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr attr;
    if (ibv_query_port(context, static_cast<uint8_t>(port), &attr) == 0 && attr.state == IBV_PORT_ACTIVE)
      return true;
  }
  return false;
}

ibv_context* open_device(const std::string& wanted, std::string& name) {
  const DeviceList list(ibv_get_device_list(nullptr));
  if (!list) throw std::runtime_error("ibv_get_device_list: errno " + errno_text(errno));
  for (ibv_device** device = list.get(); *device != nullptr; ++device) {
    if (!wanted.empty() && wanted != ibv_get_device_name(*device)) continue;
    ibv_context* context = ibv_open_device(*device);
    if (context == nullptr && !wanted.empty())
      throw std::runtime_error("ibv_open_device of " + wanted + ": errno " + errno_text(errno));
    if (context == nullptr) continue;
    if (!wanted.empty() || has_active_port(context)) {
      name = ibv_get_device_name(*device);
      return context;
    }
    ibv_close_device(context);
  }
  throw std::runtime_error(wanted.empty() ? "no RDMA device with an active port"
                                          : "no RDMA device '" + wanted + "'");
}

// Best GID to reach oneself by: routable ones of RoCE v2 first, an IPv4 address before an IPv6 one.
int rank(const ibv_gid_entry& entry) {
  const bool mapped = entry.gid.global.subnet_prefix == 0 &&
                      ntohl(*reinterpret_cast<const uint32_t*>(&entry.gid.raw[8])) == 0xffff;
  const bool link_local = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
  if (entry.gid_type == IBV_GID_TYPE_IB) return 4;
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 3;
  return mapped ? 0 : link_local ? 2 : 1;
}

}  // namespace

Device::Device(const Options& options) {
  context_ = open_device(options.device, name_);
  try {
    if (const int error = ibv_query_device_ex(context_, nullptr, &extended_); error != 0)
      throw std::runtime_error("ibv_query_device_ex: " + errno_text(error));
    choose_port(options);
    choose_gid(options);
  } catch (...) {
    ibv_close_device(context_);
    throw;
  }
}

Device::~Device() {
  if (context_ != nullptr) ibv_close_device(context_);
}

void Device::choose_port(const Options& options) {
  const int count = attributes().phys_port_cnt;
  if (options.port > count) throw std::runtime_error(name_ + " has no port " + std::to_string(options.port));
  for (int port = 1; port <= count; ++port) {
    if (options.port != 0 && options.port != port) continue;
    ibv_port_attr attr;
    if (ibv_query_port(context_, static_cast<uint8_t>(port), &attr) != 0 || attr.state != IBV_PORT_ACTIVE)
      continue;
    port_ = attr;
    port_number_ = static_cast<uint8_t>(port);
    return;
  }
  throw std::runtime_error("port " + std::to_string(options.port) + " of " + name_ + " is not active");
}

void Device::choose_gid(const Options& options) {
  int best = -1, best_rank = 100;
  for (int index = 0; index < port_.gid_tbl_len; ++index) {
    if (options.gid_index >= 0 && options.gid_index != index) continue;
    ibv_gid_entry entry;
    if (ibv_query_gid_ex(context_, port_number_, static_cast<uint32_t>(index), &entry, 0) != 0) continue;
    if (rank(entry) >= best_rank) continue;
    best = index;
    best_rank = rank(entry);
  }
  if (best < 0 || best > 255)
    throw std::runtime_error("port " + std::to_string(port_number_) + " of " + name_ + " has no GID" +
                             (options.gid_index < 0 ? "" : " of index " + std::to_string(options.gid_index)));
  gid_index_ = static_cast<uint8_t>(best);
  if (ibv_query_gid(context_, port_number_, best, &gid_) != 0)
    throw std::runtime_error("ibv_query_gid: errno " + errno_text(errno));
}

ibv_ah_attr Device::address_of(const ibv_gid& gid, uint16_t lid) const {
  ibv_ah_attr address = {};
  address.port_num = port_number_;
  address.dlid = lid;
  // A multicast packet has a GRH on every link (InfiniBand vol. 1, 10.5). By LID 0 nobody is reached: a port
  // without LIDs has GIDs alone, and may not say IBV_QPF_GRH_REQUIRED.
  if (is_ethernet() || lid == 0 || is_multicast(gid) || (port_.flags & IBV_QPF_GRH_REQUIRED) != 0) {
    address.is_global = 1;
    address.grh.dgid = gid;
    address.grh.sgid_index = gid_index_;
    address.grh.hop_limit = 64;
  }
  return address;
}

bool is_multicast(const ibv_gid& gid) {
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(gid.raw)) != 0;
  return is_ipv4 ? (gid.raw[12] & 0xf0) == 0xe0 : gid.raw[0] == 0xff;
}

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

std::vector<std::pair<std::string, std::string>> facts_of(const Device& device) {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto text = [&](const char* name, const std::string& value) { facts.emplace_back(name, value); };
  const auto number = [&](const char* name, uint64_t value) { text(name, std::to_string(value)); };
  const auto hex = [&](const char* name, uint64_t value) {
    char out[24];
    snprintf(out, sizeof out, "0x%llx", static_cast<unsigned long long>(value));
    text(name, out);
  };
  const ibv_device_attr& d = device.attributes();
  const ibv_device_attr_ex& e = device.extended();
  const ibv_port_attr& p = device.port();
  text("name", device.name());
  text("node_type", ibv_node_type_str(device.context()->device->node_type));
  text("fw_ver", std::string(d.fw_ver, strnlen(d.fw_ver, sizeof d.fw_ver)));
  hex("vendor_id", d.vendor_id);
  number("vendor_part_id", d.vendor_part_id);
  number("hw_ver", d.hw_ver);
  hex("node_guid", be64toh(d.node_guid));
  number("port", device.port_number());
  number("gid_index", device.gid_index());
  text("gid", gid_text(device.gid()));
  text("link_layer", device.is_ethernet()                         ? "Ethernet"
                     : p.link_layer == IBV_LINK_LAYER_UNSPECIFIED ? "unspecified"
                                                                  : "InfiniBand");
  text("port_state", ibv_port_state_str(p.state));
  number("active_mtu", 128u << p.active_mtu);
  number("max_mtu", 128u << p.max_mtu);
  number("lid", p.lid);
  number("gid_tbl_len", static_cast<uint64_t>(p.gid_tbl_len));
  number("pkey_tbl_len", p.pkey_tbl_len);
  number("max_msg_sz", p.max_msg_sz);
  hex("port_cap_flags", p.port_cap_flags);
#define FIELD(field) number(#field, static_cast<uint64_t>(d.field))
  number("phys_port_cnt", d.phys_port_cnt);
  FIELD(max_mr_size), hex("page_size_cap", d.page_size_cap);
  FIELD(max_qp), FIELD(max_qp_wr), hex("device_cap_flags", d.device_cap_flags);
  FIELD(max_sge), FIELD(max_sge_rd), FIELD(max_cq), FIELD(max_cqe), FIELD(max_mr), FIELD(max_pd);
  FIELD(max_qp_rd_atom), FIELD(max_res_rd_atom), FIELD(max_qp_init_rd_atom);
  constexpr const char* levels[] = {"none", "HCA", "global"};
  text("atomic_cap", d.atomic_cap <= IBV_ATOMIC_GLOB ? levels[d.atomic_cap] : "unknown");
  FIELD(max_mw), FIELD(max_mcast_grp), FIELD(max_mcast_qp_attach), FIELD(max_total_mcast_qp_attach);
  FIELD(max_ah), FIELD(max_srq), FIELD(max_srq_wr), FIELD(max_srq_sge), FIELD(max_pkeys),
      FIELD(local_ca_ack_delay);
#undef FIELD
  hex("device_cap_flags_ex", e.device_cap_flags_ex);
  hex("odp_general_caps", e.odp_caps.general_caps);
  hex("odp_rc_caps", e.odp_caps.per_transport_caps.rc_odp_caps);
  hex("odp_uc_caps", e.odp_caps.per_transport_caps.uc_odp_caps);
  hex("odp_ud_caps", e.odp_caps.per_transport_caps.ud_odp_caps);
  hex("completion_timestamp_mask", e.completion_timestamp_mask);
  number("hca_core_clock", e.hca_core_clock);
  number("max_tso", e.tso_caps.max_tso);
  number("max_cq_count", e.cq_mod_caps.max_cq_count);
  number("max_cq_period", e.cq_mod_caps.max_cq_period);
  number("max_dm_size", e.max_dm_size);
  return facts;
}

}  // namespace conformance
