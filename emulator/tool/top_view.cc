// SPDX-License-Identifier: BSD-2-Clause
#include "tool/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tool/object_text.h"
#include "tool/status_notes.h"
#include "tool/text_table.h"
#include "tool/words.h"

namespace verbena::tool {
namespace {

using Json = nlohmann::ordered_json;

// "0", "12.3k", "4.56M": three significant digits, units of 1000.
std::string short_number(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return value > 0 && value < 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string percent(double part) { return fmt::format("{:.0f}%", part * 100); }

const ProcessSnapshot& process_of(const std::vector<NodeSnapshot>& nodes, const ProcessActivity& one) {
  return nodes[one.node].processes[one.process];
}
const ProcessSnapshot& process_of(const std::vector<NodeSnapshot>& nodes, const QpActivity& one) {
  return nodes[one.node].processes[one.process];
}
const QpSnapshot& qp_of(const std::vector<NodeSnapshot>& nodes, const QpActivity& one) {
  return process_of(nodes, one).qps[one.qp];
}

QpName name_of(const std::vector<NodeSnapshot>& nodes, const QpActivity& one) {
  const ProcessSnapshot& process = process_of(nodes, one);
  return {nodes[one.node].path, process.slot, process.generation, qp_of(nodes, one).qpn};
}

void add_rates(const Rates& rates, std::vector<std::string>* cells) {
  for (const double value : {rates.requests_out, rates.bytes_out, rates.requests_in, rates.bytes_in,
                             rates.rnr_naks, rates.retries})
    cells->push_back(short_number(value));
}

Table processes_as_table(const std::vector<NodeSnapshot>& nodes, const Activity& activity) {
  Table table(
      {"PID", "PROGRAM", "QPS", "CM", "SQ", "RQ", "OUT/S", "B/S", "IN/S", "B/S", "RNR/S", "RETRY/S", "CQ"});
  for (const ProcessActivity& one : activity.processes) {
    const ProcessSnapshot& process = process_of(nodes, one);
    std::vector<std::string> cells = {
        std::to_string(process.pid),
        process.program + (process.problem.empty() ? "" : ": " + process.problem),
        std::to_string(process.qps.size()),
        std::to_string(process.cm_ids.size()),
        std::to_string(one.sends_outstanding),
        std::to_string(one.receives_posted)};
    add_rates(one.rates, &cells);
    cells.push_back(percent(one.cq_fill));
    table.row(std::move(cells));
  }
  return table;
}

Table qps_as_table(const std::vector<NodeSnapshot>& nodes, const Activity& activity) {
  Table table({"QP", "PID", "DEVICE", "TYPE", "STATE", "PEER", "SQ", "RQ", "OUT/S", "B/S", "IN/S", "B/S",
               "RNR/S", "RETRY/S", "CQ"});
  for (const QpActivity& one : activity.qps) {
    const QpSnapshot& qp = qp_of(nodes, one);
    std::vector<std::string> cells = {qpn_text(qp.qpn),
                                      std::to_string(process_of(nodes, one).pid),
                                      device_name(nodes[one.node], qp.device),
                                      qp_type_word(qp.type),
                                      qp_state_word(qp.state),
                                      peer_text(qp.peer),
                                      std::to_string(qp.sends_outstanding),
                                      std::to_string(qp.receives_posted)};
    add_rates(one.rates, &cells);
    cells.push_back(percent(one.cq_fill));
    table.row(std::move(cells));
  }
  return table;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string summary(const std::vector<NodeSnapshot>& nodes, const Activity& activity) {
  Rates sum;
  size_t processes = 0;
  for (const ProcessActivity& one : activity.processes) sum += one.rates;
  for (const NodeSnapshot& node : nodes) processes += node.processes.size();
  return fmt::format("{} {}, {} {}, {} {}; {} requests/s, {}B/s; {:.1f} s", nodes.size(),
                     nodes.size() == 1 ? "node" : "nodes", processes,
                     processes == 1 ? "process" : "processes", activity.qps.size(),
                     activity.qps.size() == 1 ? "QP" : "QPs", short_number(sum.requests_out),
                     short_number(sum.bytes_out), activity.seconds);
}

// The selected queue pair, or the first one; nullptr: there is none.
const QpActivity* selected_qp(const std::vector<NodeSnapshot>& nodes, const Activity& activity,
                              const TopState& state) {
  for (const QpActivity& one : activity.qps)
    if (name_of(nodes, one) == state.selected) return &one;
  return activity.qps.empty() ? nullptr : &activity.qps.front();
}

std::string cq_text(const ProcessSnapshot& process, uint32_t index) {
  for (const CqSnapshot& cq : process.cqs)
    if (cq.index == index)
      return fmt::format("CQ {}: {} of {} entries, armed: {}, {} events, {} of them read{}", index,
                         cq.entries, cq.capacity, armed_word(cq.armed), cq.events, cq.events_read,
                         cq.overrun ? ", OVERRUN" : "");
  return fmt::format("CQ {}", index);
}

std::vector<std::string> qp_details(const NodeSnapshot& node, const ProcessSnapshot& process,
                                    const QpSnapshot& qp, const Rates& rates) {
  std::vector<std::string> lines = {
      fmt::format("QP {} of {} ({}), {} port {}", qpn_text(qp.qpn), process.pid, process.program,
                  device_name(node, qp.device), qp.port),
      fmt::format("  {} in {} for {:.0f} s; peer: {}", qp_type_word(qp.type), qp_state_word(qp.state),
                  seconds_since(node, qp.state_since), peer_text(qp.peer)),
      fmt::format("  send queue:    {} outstanding, next PSN {}; {} ", qp.sends_outstanding, qp.sq_psn,
                  cq_text(process, qp.send_cq)),
      fmt::format("  receive queue: {} posted, {} taken, next PSN {}; {}", qp.receives_posted,
                  qp.receives_taken, qp.rq_psn, cq_text(process, qp.recv_cq)),
      fmt::format("  out: {} requests ({}/s), {} bytes ({}B/s)", qp.requests_out,
                  short_number(rates.requests_out), qp.bytes_out, short_number(rates.bytes_out)),
      fmt::format("  in:  {} requests ({}/s), {} bytes ({}B/s)", qp.requests_in,
                  short_number(rates.requests_in), qp.bytes_in, short_number(rates.bytes_in)),
      fmt::format("  RNR NAKs {}, retries {}, lost {}, dropped {}, Q_Key violations {}", qp.rnr_naks,
                  qp.retries, qp.lost, qp.dropped, qp.qkey_violations)};
  if (qp.srq != 0)
    for (const SrqSnapshot& srq : process.srqs)
      if (srq.index + 1 == qp.srq)
        lines.push_back(fmt::format("  SRQ {}: {} of {} posted, limit {}", srq.index, srq.posted,
                                    srq.capacity, srq.limit));
  if (qp.rnr_since != 0)
    lines.push_back(fmt::format("  waits for a receive request of its peer, for {:.0f} s{}",
                                seconds_since(node, qp.rnr_since),
                                qp.rnr_is_endless ? " (rnr_retry 7)" : ""));
  if (const std::string why = unmatched_receives(node, qp); !why.empty())
    lines.push_back("  no message has come: " + why);
  if (qp.error.time != 0) lines.push_back("  " + error_text(node, qp));
  return lines;
}

void add_text(const std::string& text, TopLine::Style style, std::vector<TopLine>* lines) {
  for (std::string& line : lines_of(text)) lines->push_back({std::move(line), style});
}

Json rates_as_json(const Rates& rates) {
  return {{"requests_out_per_s", rates.requests_out}, {"bytes_out_per_s", rates.bytes_out},
          {"requests_in_per_s", rates.requests_in},   {"bytes_in_per_s", rates.bytes_in},
          {"rnr_naks_per_s", rates.rnr_naks},         {"retries_per_s", rates.retries}};
}

}  // namespace

std::vector<QpName> shown_qps(const std::vector<NodeSnapshot>& nodes, const Activity& activity) {
  std::vector<QpName> names;
  for (const QpActivity& one : activity.qps) names.push_back(name_of(nodes, one));
  return names;
}

void press(TopKey key, const std::vector<QpName>& shown, size_t rows, TopState* state) {
  const auto move = [&](ptrdiff_t by) {
    if (shown.empty()) return;
    const auto found = std::find(shown.begin(), shown.end(), state->selected);
    const ptrdiff_t from = found == shown.end() ? 0 : found - shown.begin();
    state->selected = shown[static_cast<size_t>(std::clamp<ptrdiff_t>(from + by, 0, std::ssize(shown) - 1))];
  };
  const auto page = static_cast<ptrdiff_t>(std::max<size_t>(rows / 2, 1));
  switch (key) {
    case TopKey::kUp:
      return move(-1);
    case TopKey::kDown:
      return move(1);
    case TopKey::kPageUp:
      return move(-page);
    case TopKey::kPageDown:
      return move(page);
    case TopKey::kEnter:
      move(0);
      state->looks_into_qp = !state->looks_into_qp && !shown.empty();
      return;
    case TopKey::kBack:
      state->looks_into_qp = false;
      return;
    case TopKey::kSort:
      state->order = static_cast<SortBy>((static_cast<size_t>(state->order) + 1) % kSortings);
      return;
    case TopKey::kReverse:
      state->reversed = !state->reversed;
      return;
    case TopKey::kPause:
      state->paused = !state->paused;
      return;
    case TopKey::kFaster:
      state->interval = std::max(0.1, state->interval / 2);
      return;
    case TopKey::kSlower:
      state->interval = std::min(60.0, state->interval * 2);
      return;
    case TopKey::kQuit:
      state->quits = true;
      return;
    case TopKey::kOther:
      return;
  }
}

std::vector<TopLine> top_lines(const std::vector<NodeSnapshot>& nodes, const Activity& activity,
                               const TopState& state, size_t rows) {
  using Style = TopLine::Style;
  std::vector<TopLine> lines = {{"verbena top: " + summary(nodes, activity), Style::kPlain}};
  for (const NodeSnapshot& node : nodes)
    if (!node.problem.empty()) lines.push_back({"node " + node.path + ": " + node.problem, Style::kNote});
  const QpActivity* const selected = selected_qp(nodes, activity, state);
  const TopLine foot = {
      fmt::format("s: sorted by {}{}  r: reverse  arrows, Enter: look into a QP  space: {}  +/-: every "
                  "{:.3g} s  q: quit",
                  word_of(state.order), state.reversed ? ", reversed" : "",
                  state.paused ? "go on (paused)" : "pause", state.interval),
      Style::kHead};
  if (state.looks_into_qp && selected != nullptr) {
    const NodeSnapshot& node = nodes[selected->node];
    for (std::string& line :
         qp_details(node, process_of(nodes, *selected), qp_of(nodes, *selected), selected->rates))
      lines.push_back({std::move(line), Style::kPlain});
  } else {
    const auto list = [&](const Table& table) {
      const size_t begin = lines.size();
      add_text(table.text(), Style::kPlain, &lines);
      lines[begin].style = Style::kHead;
      return begin + 1;
    };
    // The processes get a third of the screen, if there are more.
    const size_t first = list(processes_as_table(nodes, activity));
    lines.resize(std::min(lines.size(), first + std::max<size_t>(rows / 3, 1)));
    const size_t first_qp = list(qps_as_table(nodes, activity));
    if (selected != nullptr) {
      const auto place = static_cast<size_t>(selected - activity.qps.data());
      lines[first_qp + place].style = Style::kSelected;
      const size_t room = rows > first_qp + 1 ? rows - first_qp - 1 : 1;  // the last line is the foot
      const size_t scroll = place < room ? 0 : place - room + 1;
      lines.erase(lines.begin() + static_cast<ptrdiff_t>(first_qp),
                  lines.begin() + static_cast<ptrdiff_t>(first_qp + scroll));
    }
  }
  if (rows == 0) return {};
  lines.resize(std::min(lines.size(), rows - 1));
  lines.push_back(foot);
  return lines;
}

std::string top_as_text(const std::vector<NodeSnapshot>& nodes, const Activity& activity) {
  std::string text = summary(nodes, activity) + "\n";
  for (const NodeSnapshot& node : nodes)
    if (!node.problem.empty()) text += "node " + node.path + ": " + node.problem + "\n";
  return text + processes_as_table(nodes, activity).text() + qps_as_table(nodes, activity).text();
}

std::string top_as_json(const std::vector<NodeSnapshot>& nodes, const Activity& activity) {
  Json json = {{"time", nodes.empty() ? "" : time_text(nodes.back().taken_at)},
               {"seconds", activity.seconds}};
  json["nodes"] = Json::array();
  for (const NodeSnapshot& node : nodes) {
    Json one = {{"path", node.path}};
    if (!node.problem.empty()) one["problem"] = node.problem;
    json["nodes"].push_back(std::move(one));
  }
  json["processes"] = Json::array();
  for (const ProcessActivity& one : activity.processes) {
    const ProcessSnapshot& process = process_of(nodes, one);
    Json entry = {{"node", nodes[one.node].path},
                  {"pid", process.pid},
                  {"program", process.program},
                  {"slot", process.slot}};
    if (!process.problem.empty()) entry["problem"] = process.problem;
    entry["qps"] = process.qps.size();
    entry.update(rates_as_json(one.rates));
    entry.update({{"sends_outstanding", one.sends_outstanding},
                  {"receives_posted", one.receives_posted},
                  {"cq_fill", one.cq_fill},
                  {"cm_ids", process.cm_ids.size()}});
    json["processes"].push_back(std::move(entry));
  }
  json["qps"] = Json::array();
  for (const QpActivity& one : activity.qps) {
    const QpSnapshot& qp = qp_of(nodes, one);
    Json entry = {{"node", nodes[one.node].path},
                  {"pid", process_of(nodes, one).pid},
                  {"qpn", qp.qpn},
                  {"device", device_name(nodes[one.node], qp.device)},
                  {"type", qp_type_word(qp.type)},
                  {"state", qp_state_word(qp.state)},
                  {"peer", peer_text(qp.peer)}};
    entry.update(rates_as_json(one.rates));
    entry.update({{"sends_outstanding", qp.sends_outstanding},
                  {"receives_posted", qp.receives_posted},
                  {"cq_fill", one.cq_fill}});
    json["qps"].push_back(std::move(entry));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace verbena::tool
