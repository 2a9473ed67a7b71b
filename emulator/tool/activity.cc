// SPDX-License-Identifier: BSD-2-Clause
#include "tool/activity.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace verbena::tool {
namespace {

constexpr std::array<const char*, kSortings> kWords = {"bytes", "requests", "retries", "queue", "cq", "pid"};

const NodeSnapshot* same_node(const std::vector<NodeSnapshot>& nodes, const NodeSnapshot& node) {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n.path == node.path; });
  return found == nodes.end() ? nullptr : &*found;
}

const ProcessSnapshot* same_process(const NodeSnapshot* node, const ProcessSnapshot& process) {
  if (node == nullptr) return nullptr;
  for (const ProcessSnapshot& other : node->processes)
    if (other.slot == process.slot && other.generation == process.generation) return &other;
  return nullptr;
}

// Queue pairs are in the order of their table, so that the same one is at the same place or before it.
const QpSnapshot* same_qp(const ProcessSnapshot* process, const QpSnapshot& qp, size_t place) {
  if (process == nullptr) return nullptr;
  if (place < process->qps.size() && process->qps[place].qpn == qp.qpn) return &process->qps[place];
  for (const QpSnapshot& other : process->qps)
    if (other.qpn == qp.qpn) return &other;
  return nullptr;
}

double rate(uint64_t before, uint64_t now, double seconds) {
  // Less than before: the queue pair's number is that of another one now.
  return static_cast<double>(now >= before ? now - before : now) / seconds;
}

Rates rates_between(const QpSnapshot* before, const QpSnapshot& now, double seconds) {
  const QpSnapshot none;
  const QpSnapshot& then = before == nullptr ? none : *before;
  return {rate(then.requests_out, now.requests_out, seconds), rate(then.bytes_out, now.bytes_out, seconds),
          rate(then.requests_in, now.requests_in, seconds),   rate(then.bytes_in, now.bytes_in, seconds),
          rate(then.rnr_naks, now.rnr_naks, seconds),         rate(then.retries, now.retries, seconds)};
}

double fill_of(const ProcessSnapshot& process, const QpSnapshot& qp) {
  double fill = 0;
  for (const CqSnapshot& cq : process.cqs)
    if (cq.index == qp.send_cq || cq.index == qp.recv_cq) fill = std::max(fill, cq.fill());
  return fill;
}

double key_of(const Rates& rates, SortBy order) {
  switch (order) {
    case SortBy::kBytes:
      return rates.bytes_out + rates.bytes_in;
    case SortBy::kRequests:
      return rates.requests_out + rates.requests_in;
    default:
      return rates.retries + rates.rnr_naks;
  }
}

}  // namespace

Rates& Rates::operator+=(const Rates& other) {
  requests_out += other.requests_out;
  bytes_out += other.bytes_out;
  requests_in += other.requests_in;
  bytes_in += other.bytes_in;
  rnr_naks += other.rnr_naks;
  retries += other.retries;
  return *this;
}

Activity activity_between(const std::vector<NodeSnapshot>& before, const std::vector<NodeSnapshot>& now) {
  Activity result;
  for (size_t n = 0; n < now.size(); ++n) {
    const NodeSnapshot* const node_before = same_node(before, now[n]);
    // A new node's counts are those of the whole time between the looks: that of any other node.
    const uint64_t then = node_before != nullptr ? node_before->taken_at
                          : before.empty()       ? 0
                                                 : before[0].taken_at;
    const double seconds =
        then != 0 && now[n].taken_at > then ? static_cast<double>(now[n].taken_at - then) / 1e9 : 0;
    result.seconds = std::max(result.seconds, seconds);
    for (size_t p = 0; p < now[n].processes.size(); ++p) {
      const ProcessSnapshot& process = now[n].processes[p];
      const ProcessSnapshot* const process_before = same_process(node_before, process);
      ProcessActivity sum{n, p, {}, 0, 0, 0};
      for (size_t q = 0; q < process.qps.size(); ++q) {
        const QpSnapshot& qp = process.qps[q];
        QpActivity one{n, p, q, {}, fill_of(process, qp)};
        if (seconds > 0) one.rates = rates_between(same_qp(process_before, qp, q), qp, seconds);
        sum.rates += one.rates;
        sum.sends_outstanding += qp.sends_outstanding;
        sum.receives_posted += qp.receives_posted;
        result.qps.push_back(one);
      }
      for (const CqSnapshot& cq : process.cqs) sum.cq_fill = std::max(sum.cq_fill, cq.fill());
      for (const SrqSnapshot& srq : process.srqs)
        if (srq.of_program) sum.receives_posted += srq.posted;
      result.processes.push_back(sum);
    }
  }
  return result;
}

const char* word_of(SortBy order) { return kWords[static_cast<size_t>(order)]; }

bool parse_sorting(const std::string& word, SortBy* out) {
  const auto found = std::find(kWords.begin(), kWords.end(), word);
  if (found == kWords.end()) return false;
  *out = static_cast<SortBy>(found - kWords.begin());
  return true;
}

void sort_activity(const std::vector<NodeSnapshot>& now, SortBy order, bool reversed, Activity* activity) {
  const auto process_of = [&](const auto& one) -> const ProcessSnapshot& {
    return now[one.node].processes[one.process];
  };
  const auto qp_key = [&](const QpActivity& one) -> double {
    if (order == SortBy::kPid) return -process_of(one).pid;
    if (order == SortBy::kCqFill) return one.cq_fill;
    if (order == SortBy::kSendQueue)
      return static_cast<double>(process_of(one).qps[one.qp].sends_outstanding);
    return key_of(one.rates, order);
  };
  const auto process_key = [&](const ProcessActivity& one) -> double {
    if (order == SortBy::kPid) return -process_of(one).pid;
    if (order == SortBy::kCqFill) return one.cq_fill;
    if (order == SortBy::kSendQueue) return static_cast<double>(one.sends_outstanding);
    return key_of(one.rates, order);
  };
  const auto sort_by = [&](auto& list, const auto& key) {
    std::stable_sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
      return reversed ? key(a) < key(b) : key(a) > key(b);
    });
  };
  sort_by(activity->qps, qp_key);
  sort_by(activity->processes, process_key);
}

}  // namespace verbena::tool
