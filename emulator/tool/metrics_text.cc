// SPDX-License-Identifier: BSD-2-Clause
#include "tool/metrics_text.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "survey/counters.h"
#include "tool/object_text.h"
#include "tool/words.h"

namespace verbena::tool {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

// Of the same place in kHwCounterNames.
constexpr std::array<const char*, kHwCounters> kHelp = {
    "Requests that queue pairs have sent.",
    "Bytes of the requests that queue pairs have sent.",
    "Requests that queue pairs have received.",
    "Bytes of the requests that queue pairs have received.",
    "RNR NAKs received: the peer had no receive request.",
    "Requests that were sent again.",
    "UC and UD messages that the receiving queue pair has dropped.",
    "UC and UD messages to another node that could not be sent.",
    "Completions of send queues in error, but for flushed ones.",
    "Completions of send queues that were flushed.",
    "Requests that the peer refused with a remote access error.",
    "Requests that the peer refused as invalid.",
    "Requests whose retries were over without an answer.",
    "Requests whose retries were over while the peer had no receive request.",
    "Completions of receive queues in error, but for flushed ones.",
    "Completions of receive queues that were flushed.",
    "Messages longer than their receive request.",
    "Requests refused here with a remote access error.",
    "Requests with a later PSN than the expected one.",
    "Requests with an earlier PSN than the expected one.",
    "Datagrams dropped for their Q_Key.",
    "Datagrams that no queue pair takes.",
};

struct PmaHelp {
  PmaCounter counter;
  const char* help;
};
// Those that are not always 0.
constexpr PmaHelp kPmaHelp[] = {
    {PmaCounter::kSentData, "Payload that the port has sent, in units of 4 bytes."},
    {PmaCounter::kReceivedData, "Payload that the port has received, in units of 4 bytes."},
    {PmaCounter::kSentPackets, "Packets that the port has sent."},
    {PmaCounter::kReceivedPackets, "Packets that the port has received."},
    {PmaCounter::kUnicastSent, "Of the packets sent: those to one queue pair."},
    {PmaCounter::kUnicastReceived, "Of the packets received: those to one queue pair."},
    {PmaCounter::kMulticastSent, "Of the packets sent: those to a group."},
    {PmaCounter::kMulticastReceived, "Of the packets received: those to a group."},
    {PmaCounter::kLinkDowned, "How often the port went down."},
    {PmaCounter::kReceiveErrors, "RoCE v2: packets received damaged."},
    {PmaCounter::kSendDiscards, "As verbena_port_send_lost_total."},
};

// Backslash, quotation mark and line feed are escaped in a label's value.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

class Metric {
 public:
  Metric(const char* name, const char* type, const char* help)
      : name_(name), head_(fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type)) {}

  void add(const Labels& labels, double value) {
    std::string list;
    for (const auto& [name, text] : labels)
      list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, escaped(text));
    lines_ += fmt::format("{}{{{}}} {}\n", name_, list, value);
  }
  // Nothing, if there is no value.
  std::string text() const { return lines_.empty() ? "" : head_ + lines_; }

 private:
  std::string name_, head_, lines_;
};

Labels labels_of(const NodeSnapshot& node) { return {{"node", node.path}}; }

Labels labels_of(const NodeSnapshot& node, const ProcessSnapshot& process) {
  return {{"node", node.path}, {"pid", std::to_string(process.pid)}, {"program", process.program}};
}

void for_each_process(const std::vector<NodeSnapshot>& nodes,
                      const std::function<void(const NodeSnapshot&, const ProcessSnapshot&)>& callback) {
  for (const NodeSnapshot& node : nodes)
    for (const ProcessSnapshot& process : node.processes) callback(node, process);
}

void for_each_port(
    const std::vector<NodeSnapshot>& nodes,
    const std::function<void(const NodeSnapshot&, uint32_t, uint32_t, const Labels&)>& callback) {
  for (const NodeSnapshot& node : nodes)
    for (uint32_t device = 0; device < std::min(node.devices.count, kMaxDevices); ++device)
      for (uint32_t port = 1; port <= node.devices.devices[device].count_ports(); ++port)
        callback(
            node, device, port,
            {{"node", node.path}, {"device", device_name(node, device)}, {"port", std::to_string(port)}});
}

std::string nodes_text(const std::vector<NodeSnapshot>& nodes) {
  Metric readable("verbena_node_readable", "gauge", "1: the node can be read.");
  Metric processes("verbena_node_processes", "gauge", "Processes that have a device open.");
  for (const NodeSnapshot& node : nodes) {
    readable.add(labels_of(node), node.problem.empty() ? 1 : 0);
    if (node.problem.empty()) processes.add(labels_of(node), static_cast<double>(node.processes.size()));
  }
  return readable.text() + processes.text();
}

std::string ports_text(const std::vector<NodeSnapshot>& nodes) {
  Metric active("verbena_port_active", "gauge", "1: the port is IBV_PORT_ACTIVE; 0: it is down.");
  for_each_port(nodes, [&](const NodeSnapshot& node, uint32_t device, uint32_t port, const Labels& labels) {
    active.add(labels, (node.ports_down & port_bit(device, port)) == 0 ? 1 : 0);
  });
  std::string text = active.text();
  for (size_t i = 0; i < kHwCounters; ++i) {
    const std::string name = fmt::format("verbena_port_{}_total", kHwCounterNames[i]);
    Metric metric(name.c_str(), "counter", kHelp[i]);
    for_each_port(nodes, [&](const NodeSnapshot& node, uint32_t device, uint32_t port, const Labels& labels) {
      metric.add(labels, static_cast<double>(hw_counters(node, device, port)[i]));
    });
    text += metric.text();
  }
  for (const PmaHelp& what : kPmaHelp) {
    const std::string file = kPmaCounterNames[static_cast<size_t>(what.counter)];
    const std::string name =
        fmt::format("verbena_{}{}_total", file.starts_with("port_") ? "" : "port_", file);
    Metric metric(name.c_str(), "counter", what.help);
    for_each_port(nodes, [&](const NodeSnapshot& node, uint32_t device, uint32_t port, const Labels& labels) {
      metric.add(labels,
                 static_cast<double>(pma_counters(node, device, port)[static_cast<size_t>(what.counter)]));
    });
    text += metric.text();
  }
  return text;
}

// Of nodes with RoCE v2.
std::string packets_text(const std::vector<NodeSnapshot>& nodes) {
  Metric metric(
      "verbena_packets_dropped_total", "counter",
      "RoCE v2 packets that the node has dropped, and answers that it has withheld (docs/ROCE.md).");
  for (const NodeSnapshot& node : nodes) {
    const NetworkDescription& network = node.devices.network;
    for (size_t i = 0; i < kPacketDrops && network.enabled != 0 && network.kind == NetworkKind::kRoce; ++i) {
      Labels labels = labels_of(node);
      labels.emplace_back("reason", kPacketDropNames[i]);
      metric.add(labels, static_cast<double>(node.packet_drops[i]));
    }
  }
  return metric.text();
}

std::string processes_text(const std::vector<NodeSnapshot>& nodes) {
  Metric answers("verbena_process_readable", "gauge", "1: the objects of the process can be read.");
  Metric qps("verbena_process_qps", "gauge", "Queue pairs by type and state.");
  Metric cqs("verbena_process_cqs", "gauge", "Completion queues.");
  Metric entries("verbena_process_cq_entries", "gauge", "Completions that are not polled, in all CQs.");
  Metric fill("verbena_process_cq_fill_ratio", "gauge", "How full the fullest CQ is, 0 to 1.");
  Metric overruns("verbena_process_cq_overruns", "gauge", "CQs that have overrun.");
  Metric mrs("verbena_process_mrs", "gauge", "Memory regions.");
  Metric registered("verbena_process_registered_bytes", "gauge", "Bytes of all memory regions.");
  Metric outstanding("verbena_process_sends_outstanding", "gauge", "Send requests that are not completed.");
  Metric ids("verbena_process_cm_ids", "gauge", "Ids of rdma_cm.");
  for_each_process(nodes, [&](const NodeSnapshot& node, const ProcessSnapshot& process) {
    const Labels labels = labels_of(node, process);
    answers.add(labels, process.problem.empty() ? 1 : 0);
    ids.add(labels, static_cast<double>(process.cm_ids.size()));
    if (!process.problem.empty()) return;
    std::map<std::pair<std::string, std::string>, uint32_t> counts;
    uint64_t sends = 0, waiting = 0, bytes = 0;
    double fullest = 0;
    uint32_t overrun = 0;
    for (const QpSnapshot& qp : process.qps) {
      ++counts[{qp_type_word(qp.type), qp_state_word(qp.state)}];
      sends += qp.sends_outstanding;
    }
    for (const CqSnapshot& cq : process.cqs) {
      waiting += cq.entries;
      overrun += cq.overrun ? 1 : 0;
      fullest = std::max(fullest, cq.fill());
    }
    for (const MrSnapshot& mr : process.mrs) bytes += mr.length;
    for (const auto& [key, count] : counts) {
      Labels more = labels;
      more.emplace_back("type", key.first);
      more.emplace_back("state", key.second);
      qps.add(more, count);
    }
    cqs.add(labels, static_cast<double>(process.cqs.size()));
    entries.add(labels, static_cast<double>(waiting));
    fill.add(labels, fullest);
    overruns.add(labels, overrun);
    mrs.add(labels, static_cast<double>(process.mrs.size()));
    registered.add(labels, static_cast<double>(bytes));
    outstanding.add(labels, static_cast<double>(sends));
  });
  std::string text;
  for (const Metric* metric :
       {&answers, &qps, &cqs, &entries, &fill, &overruns, &mrs, &registered, &outstanding, &ids})
    text += metric->text();
  return text;
}

std::string qps_text(const std::vector<NodeSnapshot>& nodes) {
  struct Column {
    const char *name, *type, *help;
    double (*value)(const QpSnapshot&);
  };
  static constexpr Column kColumns[] = {
      {"verbena_qp_requests_out_total", "counter", "Requests that the queue pair has sent.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.requests_out); }},
      {"verbena_qp_bytes_out_total", "counter", "Bytes of the requests that it has sent.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.bytes_out); }},
      {"verbena_qp_requests_in_total", "counter", "Requests that it has received.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.requests_in); }},
      {"verbena_qp_bytes_in_total", "counter", "Bytes of the requests that it has received.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.bytes_in); }},
      {"verbena_qp_rnr_naks_total", "counter", "RNR NAKs received.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.rnr_naks); }},
      {"verbena_qp_retries_total", "counter", "Requests that were sent again.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.retries); }},
      {"verbena_qp_sends_outstanding", "gauge", "Send requests that are not completed.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.sends_outstanding); }},
      {"verbena_qp_receives_posted", "gauge", "Receive requests that wait for a message.",
       [](const QpSnapshot& qp) { return static_cast<double>(qp.receives_posted); }},
  };
  std::string text;
  for (const Column& column : kColumns) {
    Metric metric(column.name, column.type, column.help);
    for_each_process(nodes, [&](const NodeSnapshot& node, const ProcessSnapshot& process) {
      for (const QpSnapshot& qp : process.qps) {
        Labels labels = labels_of(node, process);
        labels.emplace_back("device", device_name(node, qp.device));
        labels.emplace_back("qpn", qpn_text(qp.qpn));
        labels.emplace_back("type", qp_type_word(qp.type));
        metric.add(labels, column.value(qp));
      }
    });
    text += metric.text();
  }
  return text;
}

}  // namespace

std::string metrics_as_text(const std::vector<NodeSnapshot>& nodes, bool each_qp) {
  return nodes_text(nodes) + ports_text(nodes) + packets_text(nodes) + processes_text(nodes) +
         (each_qp ? qps_text(nodes) : "");
}

}  // namespace verbena::tool
