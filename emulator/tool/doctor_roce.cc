// SPDX-License-Identifier: BSD-2-Clause
//
// verbena doctor --peer HOST --roce ADDR: the way of RoCE v2 packets to a peer and back.
#include <errno.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>

#include "tool/finding.h"
#include "tool/resolve_host.h"
#include "tool/roce_probe.h"
#include "tool/udp_port_holder.h"

namespace verbena::tool {
namespace {

namespace fs = std::filesystem;
using wire::NetAddress;

// What an IP packet has beside the payload of a RoCE v2 packet, at most (fabric/device_table.cc).
constexpr uint32_t kMostHeaders = 40 + 8 + 12 + 4 + 28 + 4;
constexpr uint32_t kLeastPathMtu = 256;

class Report {
 public:
  Report(Findings* findings, const std::string& host) : findings_(findings), where_("peer " + host) {}
  void good(const std::string& what) { add(Verdict::kGood, what, ""); }
  void note(const std::string& what, const std::string& remedy) { add(Verdict::kNote, what, remedy); }
  void bad(const std::string& what, const std::string& remedy) { add(Verdict::kBad, what, remedy); }

 private:
  void add(Verdict verdict, const std::string& what, const std::string& remedy) {
    findings_->push_back({verdict, where_, what, remedy});
  }
  Findings* findings_;
  std::string where_;
};

// Software adapters of the kernel (rxe, siw) have the file `parent`, with the name of their interface.
std::string names_of_software_adapters() {
  std::string names;
  std::error_code error;
  for (fs::directory_iterator each("/sys/class/infiniband", error), end; !error && each != end;
       each.increment(error)) {
    std::error_code absent;
    if (fs::exists(each->path() / "parent", absent))
      names += (names.empty() ? "" : ", ") + each->path().filename().string();
  }
  return names;
}

void explain_open(int error, const std::string& problem, const NetAddress& own, Report& report) {
  if (error == EADDRNOTAVAIL)
    return report.bad(problem, "--roce has to name an address of this machine: ip address");
  if (error != EADDRINUSE) return report.bad(problem, "");
  const PortHolder holder = find_udp_port_holder(own, udp::kRocePort);
  const std::string port = own.text(udp::kRocePort);
  const std::string adapters = names_of_software_adapters();
  if (holder.pid == 0 && holder.at_all_addresses && !adapters.empty())
    return report.bad(
        fmt::format("UDP port {} belongs to the kernel, as with rxe (here: {})", port, adapters),
        "take an address of another network namespace, or rdma link delete DEVICE");
  if (holder.pid != 0)
    return report.bad(fmt::format("process {} ({}) has UDP port {}", holder.pid, holder.program, port),
                      "if it is a program on a node of yours, ask again when the node's programs have ended; "
                      "else end it: another node, or another program, cannot share the port");
  report.bad(fmt::format("another process has UDP port {}", port),
             "as root, ss -ulpn 'sport = 4791' names it");
}

void examine_identification(RoceProbe& probe, const NetAddress& peer, Report& report) {
  const std::optional<uint16_t> identification = probe.sent_identification(peer);
  if (identification && *identification != 0)
    report.bad(
        fmt::format("this kernel sends IPv4 identification {} where it should be 0: the ICRC is wrong, and "
                    "adapters drop our packets",
                    *identification),
        "a sandbox or an old kernel ignores IP_MTU_DISCOVER: take IPv6, or another kernel");
}

bool is_private(const NetAddress& address) {
  if (!address.is_ipv4()) return (address.bytes[0] & 0xfe) == 0xfc;  // RFC 4193
  const uint8_t a = address.bytes[12], b = address.bytes[13];        // RFC 1918, RFC 6598
  return a == 10 || (a == 172 && (b & 0xf0) == 16) || (a == 192 && b == 168) ||
         (a == 100 && (b & 0xc0) == 64);
}

constexpr const char* kNoTranslation =
    "RoCE v2 cannot cross address translation (published container ports, masquerade, load balancers): take "
    "addresses that both machines have themselves";

void explain_silence(const RoceObservation& seen, const NetAddress& own, const NetAddress& peer,
                     Report& report) {
  const std::string by = seen.said_by && *seen.said_by != peer ? ", says " + seen.said_by->text() : "";
  const std::string port = "UDP port 4791";
  switch (seen.unreachable) {
    case Unreachable::kPort:
      return report.bad(fmt::format("{} can be reached, but nobody has its {}{}", peer.text(), port, by),
                        "a node has it while a program uses its device: verbena run --roce " + peer.text() +
                            " there; of rxe: rdma link; or a firewall refuses in this way");
    case Unreachable::kHost:
      return report.bad(fmt::format("nobody has the address {}{}", peer.text(), by),
                        "ip route get " + peer.text() + " says how this machine would go there");
    case Unreachable::kFiltered:
      return report.bad(fmt::format("a firewall refuses {} of {}{}", port, peer.text(), by),
                        "let UDP port 4791 pass in both directions");
    case Unreachable::kOther:
      return report.bad(fmt::format("{} of {} is refused{}", port, peer.text(), by), "");
    case Unreachable::kNot:
      break;
  }
  if (is_private(own) && !is_private(peer) && peer.is_ipv4())
    return report.bad(
        fmt::format("{} does not answer, and {} is a private address: it is probably translated on "
                    "the way, so that the ICRC does not fit",
                    peer.text(), own.text()),
        kNoTranslation);
  report.bad(
      fmt::format("{} does not answer at {}", peer.text(), port),
      "one of these: a firewall drops it; addresses are translated on the way, and the peer drops what has "
      "a wrong ICRC (a node counts it: verbena status there, wrong_icrc); the peer takes packets of others "
      "only (--peers); no program there has a queue pair or uses rdma_cm at the moment; the machine is down");
}

void examine_answers(RoceProbe& probe, const NetAddress& own, const NetAddress& peer, Report& report,
                     bool* is_reached) {
  const RoceObservation seen = probe.ask(peer);
  *is_reached = seen.has_answer || seen.error == EMSGSIZE;  // what the way takes is told next
  if (seen.error == EMSGSIZE) return;
  if (seen.error != 0)
    return report.bad(fmt::format("{} cannot be reached: {}", peer.text(), std::strerror(seen.error)),
                      "ip route get " + peer.text() + " says how this machine would go there");
  if (seen.damaged_from)
    report.bad(
        fmt::format("a packet arrives from {} whose ICRC does not fit: its addresses were translated on the "
                    "way, or it is damaged",
                    seen.damaged_from->text()),
        kNoTranslation);
  if (seen.has_answer) {
    report.good(
        fmt::format("{} answers in {:.2f} ms", peer.text(), static_cast<double>(seen.nanoseconds) / 1e6));
    if (seen.asked > 1)
      report.note(fmt::format("{} of {} requests went unanswered", seen.asked - 1, seen.asked),
                  "packets are lost on the way");
    if (seen.identification != 0)
      report.note(
          "it numbers its packets (IPv4 identification), as rxe does: 16 of the 32 bits of the ICRC check "
          "them",
          "IPv6 has all 32");
  } else if (seen.answers_from) {
    report.bad(fmt::format("the answer comes from {}: queue pairs that are connected to {} would drop it",
                           seen.answers_from->text(), peer.text()),
               "ask for that address, or have a route there that leads back from the address that was asked");
  } else if (!seen.damaged_from) {
    explain_silence(seen, own, peer, report);
  }
}

void examine_path_mtu(RoceProbe& probe, const NetAddress& peer, uint32_t active_mtu, Report& report) {
  const uint32_t wanted = active_mtu + kMostHeaders;
  const uint32_t taken = probe.find_path_mtu(peer, wanted);
  if (taken == 0) return;
  uint32_t most = active_mtu;
  while (most >= kLeastPathMtu && most + kMostHeaders > taken) most /= 2;
  if (most == active_mtu)
    return report.good(fmt::format("a path MTU of {} fits the way ({} bytes)", most, taken));
  const std::string what =
      fmt::format("the way takes {} bytes of IP, and a path MTU of {} needs {}", taken, active_mtu, wanted);
  if (most < kLeastPathMtu)
    return report.bad(what + "; the least one, 256, does not fit either",
                      "raise the MTU of the links on the way");
  report.bad(
      what,
      fmt::format("programs have to ask for {} (perftest: -m {}), or raise the MTU of the links on the way",
                  most, most));
}

}  // namespace

void examine_roce_peer(const RocePeerProbe& wanted, Findings* findings) {
  Report report(findings, wanted.host);
  NetAddress peer;
  std::string problem;
  if (!resolve_host(wanted.host, wanted.from.is_ipv4() ? AF_INET : AF_INET6, &peer, &problem))
    return report.bad("is no address, and no name that resolves: " + problem, "give its IP address");
  if (peer.is_ipv4() != wanted.from.is_ipv4() || !peer.is_reachable())
    return report.bad(fmt::format("{} cannot be reached from {}", peer.text(), wanted.from.text()),
                      "both ends need addresses of one IP version, and no link-local ones");
  RoceProbe probe;
  if (const int error = probe.open(wanted.from, &problem); error != 0)
    return explain_open(error, problem, wanted.from, report);
  examine_identification(probe, peer, report);
  bool is_reached = false;
  examine_answers(probe, wanted.from, peer, report, &is_reached);
  if (is_reached) examine_path_mtu(probe, peer, wanted.active_mtu, report);
}

}  // namespace verbena::tool
