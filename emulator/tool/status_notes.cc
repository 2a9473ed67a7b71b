// SPDX-License-Identifier: BSD-2-Clause
#include "tool/status_notes.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <time.h>

#include <iterator>

#include "engine/rules/vendor_error.h"
#include "tool/words.h"

namespace verbena::tool {
namespace {

// Before that, a message may be on its way.
constexpr double kPatience = 1;  // seconds

const QpSnapshot* find_qp(const NodeSnapshot& node, uint32_t qpn) {
  for (const ProcessSnapshot& process : node.processes)
    for (const QpSnapshot& qp : process.qps)
      if (qp.qpn == qpn) return &qp;
  return nullptr;
}

std::string name_of(const QpSnapshot& qp) { return fmt::format("QP {:#08x}", qp.qpn); }

// What keeps the peer of a connected queue pair from sending.
std::string peer_reason(const NodeSnapshot& node, const QpSnapshot& qp) {
  const std::string peer = fmt::format("its peer QP {:#08x}", qp.peer.qpn);
  if (qp.peer.qpn == 0) return "it has no peer";
  if (!qp.peer.address.empty()) return peer + " is at " + qp.peer.address;
  const QpSnapshot* const other = find_qp(node, qp.peer.qpn);
  if (other == nullptr)
    return peer + (qp.peer.pid == 0 ? " is not there, or its process has ended" : " is not known");
  if (other->peer.qpn != qp.qpn)
    return other->peer.qpn == 0 ? peer + " is not connected"
                                : peer + fmt::format(" is connected to QP {:#08x} instead", other->peer.qpn);
  if (other->state != IBV_QPS_RTS)
    return peer + " is in " + qp_state_word(other->state) + ", and sends in RTS alone";
  if (other->sends_outstanding != 0)
    return peer + fmt::format(" has {} requests that are not polled as complete", other->sends_outstanding);
  return peer + " has posted nothing that takes a receive request";
}

std::string datagram_reason(const NodeSnapshot& node, const QpSnapshot& qp) {
  if (qp.qkey_violations != 0)
    return fmt::format("{} datagrams had another Q_Key and were dropped", qp.qkey_violations);
  if (qp.dropped != 0) return fmt::format("{} datagrams were dropped", qp.dropped);
  if (qp.device < node.stray_datagrams.size() && node.stray_datagrams[qp.device] != 0)
    return fmt::format("{} datagrams came to the device for QP numbers that it has not",
                       node.stray_datagrams[qp.device]);
  return "nothing has come for it";
}

}  // namespace

std::string error_text(const NodeSnapshot& node, const QpSnapshot& qp) {
  const ErrorSnapshot& error = qp.error;
  const VendorErrorText& reason = *find_vendor_error(error.vendor_err);
  return fmt::format(
      "{}: last error {} ({:.0f} s ago): {} of the {} queue: {} ({}), vendor_err {:#x} {}: {}", name_of(qp),
      time_text(error.time), seconds_since(node, error.time),
      error.has_wr_id ? fmt::format("wr_id {:#x}", error.wr_id) : "a completion that is not polled yet",
      error.receive ? "receive" : "send", status_word(error.status), error.status, error.vendor_err,
      reason.name, reason.text);
}

double seconds_since(const NodeSnapshot& node, uint64_t then) {
  return then != 0 && node.taken_at > then ? static_cast<double>(node.taken_at - then) / 1e9 : 0;
}

std::string time_text(uint64_t nanoseconds) {
  const auto seconds = static_cast<time_t>(nanoseconds / 1'000'000'000);
  tm parts;
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "?";
  return text;
}

std::string status_word(uint32_t status) {
  const std::string name = name_of_status(status);
  return name != "unknown" ? name : std::to_string(status);
}

std::string unmatched_receives(const NodeSnapshot& node, const QpSnapshot& qp) {
  const bool receives = qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD;
  if (!receives || qp.receives_posted == 0 || qp.receives_taken != 0 || qp.requests_in != 0 ||
      seconds_since(node, qp.state_since) < kPatience)
    return "";
  if (qp.type == IBV_QPT_RAW_PACKET) return "";  // it may have no flow, and nobody may send
  return qp.type == IBV_QPT_UD ? datagram_reason(node, qp) : peer_reason(node, qp);
}

std::string notes_as_text(const NodeSnapshot& node, const ProcessSnapshot& process) {
  std::string text;
  const auto add = [&text](const std::string& note) { text += "    " + note + "\n"; };
  for (const QpSnapshot& qp : process.qps) {
    if (qp.error.time != 0) add(error_text(node, qp));
    if (qp.rnr_since != 0)
      add(fmt::format("{}: has waited {:.0f} s for its peer to post a receive request{}", name_of(qp),
                      seconds_since(node, qp.rnr_since),
                      qp.rnr_is_endless ? "; rnr_retry is 7: it will wait without end" : ""));
    if (const std::string why = unmatched_receives(node, qp); !why.empty())
      add(fmt::format("{}: {} receive requests are posted, and no message has come in {:.0f} s: {}",
                      name_of(qp), qp.receives_posted, seconds_since(node, qp.state_since), why));
  }
  for (const CqSnapshot& cq : process.cqs)
    if (cq.is_asleep)
      add(fmt::format(
          "CQ {}: {} completions are not polled, it is not armed, and no event is unread: a thread that "
          "waits in ibv_get_cq_event sleeps on (arm with ibv_req_notify_cq, then poll once more)",
          cq.index, cq.entries));
  return text;
}

}  // namespace verbena::tool
