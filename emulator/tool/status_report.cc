// SPDX-License-Identifier: BSD-2-Clause
#include "tool/status_report.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/rules/vendor_error.h"
#include "tool/object_text.h"
#include "tool/status_cm.h"
#include "tool/status_notes.h"
#include "tool/text_table.h"
#include "tool/words.h"
#include "wire/address_range_text.h"
#include "wire/net_address.h"

namespace verbena::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Totals {
  uint64_t requests_out = 0;
  uint64_t bytes_out = 0;
  uint64_t requests_in = 0;
  uint64_t bytes_in = 0;
  uint64_t rnr_naks = 0;
  uint64_t retries = 0;
};

Totals sum(const ProcessSnapshot& process) {
  Totals total;
  for (const QpSnapshot& qp : process.qps) {
    total.requests_out += qp.requests_out;
    total.bytes_out += qp.bytes_out;
    total.requests_in += qp.requests_in;
    total.bytes_in += qp.bytes_in;
    total.rnr_naks += qp.rnr_naks;
    total.retries += qp.retries;
  }
  return total;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "|") + word;
  return text.empty() ? "-" : text;
}

// The number of dropped messages, and of those dropped for their Q_Key.
std::string dropped_text(const QpSnapshot& qp) {
  if (qp.qkey_violations == 0) return std::to_string(qp.dropped);
  return fmt::format("{} (Q_Key: {})", qp.dropped, qp.qkey_violations);
}

std::string qps_as_text(const NodeSnapshot& node, const ProcessSnapshot& process) {
  Table table({"QP", "DEVICE", "TYPE", "STATE", "PEER", "SQ", "RQ", "OUT", "BYTES", "IN", "BYTES", "RNR",
               "RETRY", "LOST", "DROP"});
  for (const QpSnapshot& qp : process.qps)
    table.row({qpn_text(qp.qpn), device_name(node, qp.device), qp_type_word(qp.type), qp_state_word(qp.state),
               peer_text(qp.peer), std::to_string(qp.sends_outstanding), std::to_string(qp.receives_posted),
               std::to_string(qp.requests_out), std::to_string(qp.bytes_out), std::to_string(qp.requests_in),
               std::to_string(qp.bytes_in), std::to_string(qp.rnr_naks), std::to_string(qp.retries),
               std::to_string(qp.lost), dropped_text(qp)});
  return table.empty() ? "" : table.text();
}

std::string cqs_as_text(const ProcessSnapshot& process) {
  Table table({"CQ", "SIZE", "ENTRIES", "ARMED", "EVENTS", "STATE"});
  for (const CqSnapshot& cq : process.cqs)
    table.row({std::to_string(cq.index), std::to_string(cq.capacity), std::to_string(cq.entries),
               armed_word(cq.armed), std::to_string(cq.events), cq.overrun ? "overrun" : "good"});
  return table.empty() ? "" : table.text();
}

std::string srqs_as_text(const ProcessSnapshot& process) {
  Table table({"SRQ", "PD", "SIZE", "SGES", "POSTED", "LIMIT"});
  for (const SrqSnapshot& srq : process.srqs)
    table.row({std::to_string(srq.index), std::to_string(srq.pd), std::to_string(srq.capacity),
               std::to_string(srq.max_sge), std::to_string(srq.posted),
               srq.limit == 0 ? "-" : std::to_string(srq.limit)});
  return table.empty() ? "" : table.text();
}

std::string mrs_as_text(const ProcessSnapshot& process) {
  Table table({"MR", "LKEY", "RKEY", "ADDRESS", "LENGTH", "IOVA", "ACCESS"});
  for (const MrSnapshot& mr : process.mrs)
    table.row({std::to_string(mr.lkey >> 9), fmt::format("{:#x}", mr.lkey), fmt::format("{:#x}", mr.rkey),
               fmt::format("{:#x}", mr.address), std::to_string(mr.length), fmt::format("{:#x}", mr.iova),
               joined(access_words(mr.access))});
  return table.empty() ? "" : table.text();
}

std::string connections_as_text(const ProcessSnapshot& process) {
  Table table({"NODE", "FROM", "BEGUN", "OUT", "IN", "RETRANS", "RTT"});
  for (const ConnectionSnapshot& c : process.connections)
    table.row({c.remote, c.local, c.begun_here ? "here" : "there", std::to_string(c.bytes_out),
               std::to_string(c.bytes_in), std::to_string(c.retransmissions),
               fmt::format("{} us", c.round_trip_us)});
  return table.empty() ? "" : table.text();
}

std::string process_as_text(const NodeSnapshot& node, const ProcessSnapshot& process) {
  std::string text = fmt::format("  process {} ({}), slot {}", process.pid, process.program, process.slot);
  // The ids of the connection manager are in the node's own table: known even if the process does not answer.
  const std::string others = cm_as_text(node, process) + connections_as_text(process);
  if (!process.problem.empty()) return text + ": " + process.problem + "\n" + others;
  const Totals total = sum(process);
  text += fmt::format(": {} QPs, {} CQs, {} MRs; {} requests ({} bytes) out, {} ({} bytes) in\n",
                      process.qps.size(), process.cqs.size(), process.mrs.size(), total.requests_out,
                      total.bytes_out, total.requests_in, total.bytes_in);
  return text + qps_as_text(node, process) + cqs_as_text(process) + srqs_as_text(process) +
         mrs_as_text(process) + notes_as_text(node, process) + others;
}

std::string gid_text(const GidEntry& gid) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.raw.data(), text, sizeof text) != nullptr ? text : "";
}

bool port_down(const NodeSnapshot& node, uint32_t device, uint32_t port) {
  return (node.ports_down & port_bit(device, port)) != 0;
}

uint32_t ports_of(const NodeSnapshot& node, uint32_t device) {
  return node.devices.devices[device % kMaxDevices].count_ports();
}

uint32_t strays_at(const NodeSnapshot& node, uint32_t device) {
  uint32_t sum = 0;
  for (uint32_t port = 1; port <= ports_of(node, device); ++port)
    sum += node.stray_datagrams[port_place(device, port)];
  return sum;
}

// Port 1 is also in the device's own fields, which older readers know.
Json ports_as_json(const NodeSnapshot& node, uint32_t index) {
  const DeviceDescription& device = node.devices.devices[index];
  Json list = Json::array();
  for (uint32_t number = 1; number <= device.count_ports(); ++number) {
    const PortDescription& port = device.port(number);
    Json gids = Json::array();
    for (uint32_t i = 0; i < std::min(port.gid_count, kMaxGids); ++i) gids.push_back(gid_text(port.gids[i]));
    list.push_back({{"port", number},
                    {"lid", port.lid},
                    {"port_state", port_down(node, index, number) ? "down" : "active"},
                    {"stray_datagrams", node.stray_datagrams[port_place(index, number)]},
                    {"qkey_violations", node.qkey_violations[port_place(index, number)]},
                    {"pkey_violations", node.pkey_violations[port_place(index, number)]},
                    {"gids", std::move(gids)}});
  }
  return list;
}

// Unusual facts about the devices, each as ", clause"; "": none.
std::string remarks(const NodeSnapshot& node) {
  std::string text;
  if (node.devices.count != 0 && !(node.devices.devices[0].limits == DeviceLimits{}))
    text += fmt::format(", profile {}", node.devices.devices[0].limits.profile.data());
  for (uint32_t i = 0; i < std::min(node.devices.count, kMaxDevices); ++i)
    for (uint32_t port = 1; port <= ports_of(node, i); ++port)
      if (port_down(node, i, port))
        text += fmt::format(", {}'s port{} is down", device_name(node, i),
                            ports_of(node, i) == 1 ? "" : " " + std::to_string(port));
  for (uint32_t i = 0; i < std::min(node.devices.count, kMaxDevices); ++i)
    if (const uint32_t strays = strays_at(node, i); strays != 0)
      text += fmt::format(", {} dropped {} that no QP takes", device_name(node, i),
                          strays == 1 ? "1 datagram" : fmt::format("{} datagrams", strays));
  return text;
}

Json devices_as_json(const NodeSnapshot& node) {
  const DeviceTable& devices = node.devices;
  Json list = Json::array();
  for (uint32_t i = 0; i < std::min(devices.count, kMaxDevices); ++i) {
    const DeviceDescription& device = devices.devices[i];
    Json gids = Json::array();
    for (uint32_t j = 0; j < std::min(device.ports[0].gid_count, kMaxGids); ++j)
      gids.push_back(gid_text(device.ports[0].gids[j]));
    list.push_back({{"name", device.name.data()},
                    {"node_guid", fmt::format("{:016x}", device.node_guid)},
                    {"link_layer", device.link_layer == LinkLayer::kEthernet ? "ethernet" : "infiniband"},
                    {"lid", device.ports[0].lid},
                    {"profile", device.limits.profile.data()},
                    {"port_state", port_down(node, i, 1) ? "down" : "active"},
                    {"stray_datagrams", node.stray_datagrams[i]},
                    {"qkey_violations", node.qkey_violations[i]},
                    {"gids", std::move(gids)},
                    {"ports", ports_as_json(node, i)}});
  }
  return list;
}

Json peer_as_json(const PeerSnapshot& peer) {
  if (peer.qpn == 0) return nullptr;
  if (!peer.address.empty()) return {{"qpn", peer.qpn}, {"address", peer.address}};
  Json json = {{"qpn", peer.qpn}, {"slot", peer.slot}, {"alive", peer.pid != 0}};
  if (peer.pid != 0) json.update({{"pid", peer.pid}, {"program", peer.program}});
  return json;
}

Json error_as_json(const ErrorSnapshot& error) {
  if (error.time == 0) return nullptr;
  Json json = {{"time", time_text(error.time)},
               {"queue", error.receive ? "receive" : "send"},
               {"status", error.status},
               {"status_name", status_word(error.status)},
               {"vendor_err", error.vendor_err},
               {"vendor_err_name", find_vendor_error(error.vendor_err)->name},
               {"wr_id", nullptr}};
  if (error.has_wr_id) json["wr_id"] = error.wr_id;
  return json;
}

// What a queue pair waits for, and may wait for without end.
Json wait_as_json(const NodeSnapshot& node, const QpSnapshot& qp) {
  if (qp.rnr_since == 0) return nullptr;
  return {{"what", "receive request of the peer"},
          {"seconds", seconds_since(node, qp.rnr_since)},
          {"without_end", qp.rnr_is_endless}};
}

Json unmatched_as_json(const NodeSnapshot& node, const QpSnapshot& qp) {
  const std::string why = unmatched_receives(node, qp);
  if (why.empty()) return nullptr;
  return {{"seconds", seconds_since(node, qp.state_since)}, {"why", why}};
}

Json qps_as_json(const NodeSnapshot& node, const ProcessSnapshot& process) {
  Json list = Json::array();
  for (const QpSnapshot& qp : process.qps)
    list.push_back({{"qpn", qp.qpn},
                    {"device", device_name(node, qp.device)},
                    {"type", qp_type_word(qp.type)},
                    {"state", qp_state_word(qp.state)},
                    {"peer", peer_as_json(qp.peer)},
                    {"send_cq", qp.send_cq},
                    {"recv_cq", qp.recv_cq},
                    {"sends_outstanding", qp.sends_outstanding},
                    {"receives_posted", qp.receives_posted},
                    {"requests_out", qp.requests_out},
                    {"bytes_out", qp.bytes_out},
                    {"requests_in", qp.requests_in},
                    {"bytes_in", qp.bytes_in},
                    {"rnr_naks", qp.rnr_naks},
                    {"retries", qp.retries},
                    {"lost", qp.lost},
                    {"dropped", qp.dropped},
                    {"qkey_violations", qp.qkey_violations},
                    {"waits_for", wait_as_json(node, qp)},
                    {"unmatched_receives", unmatched_as_json(node, qp)},
                    {"last_error", error_as_json(qp.error)}});
  return list;
}

Json cqs_as_json(const ProcessSnapshot& process) {
  Json list = Json::array();
  for (const CqSnapshot& cq : process.cqs)
    list.push_back({{"index", cq.index},
                    {"capacity", cq.capacity},
                    {"entries", cq.entries},
                    {"armed", armed_word(cq.armed)},
                    {"events", cq.events},
                    {"events_read", cq.events_read},
                    {"waiter_sleeps_on", cq.is_asleep},
                    {"overrun", cq.overrun}});
  return list;
}

Json srqs_as_json(const ProcessSnapshot& process) {
  Json list = Json::array();
  for (const SrqSnapshot& srq : process.srqs)
    list.push_back({{"index", srq.index},
                    {"pd", srq.pd},
                    {"capacity", srq.capacity},
                    {"max_sge", srq.max_sge},
                    {"posted", srq.posted},
                    {"limit", srq.limit}});
  return list;
}

Json mrs_as_json(const ProcessSnapshot& process) {
  Json list = Json::array();
  for (const MrSnapshot& mr : process.mrs)
    list.push_back({{"lkey", mr.lkey},
                    {"rkey", mr.rkey},
                    {"pd", mr.pd},
                    {"address", mr.address},
                    {"length", mr.length},
                    {"iova", mr.iova},
                    {"access", access_words(mr.access)}});
  return list;
}

Json connections_as_json(const ProcessSnapshot& process) {
  Json list = Json::array();
  for (const ConnectionSnapshot& c : process.connections)
    list.push_back({{"local", c.local},
                    {"remote", c.remote},
                    {"begun_here", c.begun_here},
                    {"bytes_out", c.bytes_out},
                    {"bytes_in", c.bytes_in},
                    {"retransmissions", c.retransmissions},
                    {"round_trip_us", c.round_trip_us}});
  return list;
}

Json process_as_json(const NodeSnapshot& node, const ProcessSnapshot& process) {
  Json json = {{"pid", process.pid},
               {"program", process.program},
               {"slot", process.slot},
               {"generation", process.generation}};
  add_cm(node, process, &json);
  if (node.devices.network.enabled != 0) json["connections"] = connections_as_json(process);
  if (!process.problem.empty()) {
    json["problem"] = process.problem;
    return json;
  }
  const Totals total = sum(process);
  json["counters"] = {{"requests_out", total.requests_out}, {"bytes_out", total.bytes_out},
                      {"requests_in", total.requests_in},   {"bytes_in", total.bytes_in},
                      {"rnr_naks", total.rnr_naks},         {"retries", total.retries}};
  json["qps"] = qps_as_json(node, process);
  json["cqs"] = cqs_as_json(process);
  json["srqs"] = srqs_as_json(process);
  json["mrs"] = mrs_as_json(process);
  return json;
}

std::vector<std::string> network_addresses(const NodeSnapshot& node) {
  const NetworkDescription& network = node.devices.network;
  std::vector<std::string> addresses;
  if (network.enabled != 0)
    for (uint32_t i = 0; i < std::min(network.count, kMaxGids); ++i)
      addresses.push_back(wire::NetAddress{network.addresses[i]}.text());
  return addresses;
}

std::vector<std::string> peer_ranges(const NodeSnapshot& node) {
  const NetworkDescription& network = node.devices.network;
  std::vector<std::string> ranges;
  for (uint32_t i = 0; i < std::min(network.peer_range_count, kMaxPeerRanges); ++i)
    ranges.push_back(wire::range_text(network.peer_ranges[i]));
  return ranges;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string network_as_text(const NodeSnapshot& node) {
  std::string text = join(network_addresses(node));
  if (text.empty()) return "";
  const char* const kind =
      node.devices.network.kind == NetworkKind::kRoce ? " (RoCE v2, without authentication)" : "";
  text = fmt::format("  network: {}, port {}{}\n", text, node.devices.network.port, kind);
  if (const std::string ranges = join(peer_ranges(node)); !ranges.empty())
    text += fmt::format("  packets are taken from {} only\n", ranges);
  std::string drops;
  for (size_t i = 0; i < kPacketDrops; ++i)
    if (node.packet_drops[i] != 0)
      drops += fmt::format("{}{} {}", drops.empty() ? "" : ", ", kPacketDropNames[i], node.packet_drops[i]);
  return drops.empty() ? text : fmt::format("{}  packets dropped: {}\n", text, drops);
}

Json network_as_json(const NodeSnapshot& node) {
  Json json = {{"port", node.devices.network.port}, {"addresses", network_addresses(node)}};
  if (node.devices.network.kind != NetworkKind::kRoce) return json;
  json["peers"] = peer_ranges(node);
  for (size_t i = 0; i < kPacketDrops; ++i)
    json["packets_dropped"][kPacketDropNames[i]] = node.packet_drops[i];
  return json;
}

}  // namespace

std::string status_as_text(const std::vector<NodeSnapshot>& nodes) {
  std::string text;
  for (const NodeSnapshot& node : nodes) {
    if (!text.empty()) text += "\n";
    if (!node.problem.empty()) {
      text += fmt::format("node {}: {}\n", node.path, node.problem);
      continue;
    }
    text += fmt::format("node {}: {} {}, {} {}{}\n", node.path, node.devices.count,
                        node.devices.count == 1 ? "device" : "devices", node.processes.size(),
                        node.processes.size() == 1 ? "process" : "processes", remarks(node));
    text += network_as_text(node);
    if (!node.cm_problem.empty()) text += fmt::format("  rdma_cm: {}\n", node.cm_problem);
    for (const ProcessSnapshot& process : node.processes) text += process_as_text(node, process);
  }
  return text.empty() ? "no nodes: `verbena run` makes one\n" : text;
}

std::string status_as_json(const std::vector<NodeSnapshot>& nodes) {
  Json list = Json::array();
  for (const NodeSnapshot& node : nodes) {
    Json json = {{"path", node.path}};
    if (!node.problem.empty()) json["problem"] = node.problem;
    if (!node.cm_problem.empty()) json["cm_problem"] = node.cm_problem;
    json["devices"] = devices_as_json(node);
    if (node.devices.network.enabled != 0) json["network"] = network_as_json(node);
    json["processes"] = Json::array();
    for (const ProcessSnapshot& process : node.processes)
      json["processes"].push_back(process_as_json(node, process));
    list.push_back(std::move(json));
  }
  // JSON is UTF-8; a path need not be.
  return Json{{"nodes", std::move(list)}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace verbena::tool
