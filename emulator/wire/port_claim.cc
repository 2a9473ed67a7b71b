// SPDX-License-Identifier: BSD-2-Clause
#include "wire/port_claim.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "adapter/clock.h"
#include "fabric/node.h"
#include "fabric/problem.h"

namespace verbena::wire {
namespace {

constexpr int64_t kPatience = 2'000'000'000;
constexpr timespec kPause{0, 2'000'000};

struct Claim {
  std::string name;
  uint64_t inode = 0;  // of the socket: another one each time a process asks
  uint64_t node = 0;
  bool listens = false;
};

constexpr unsigned kAccepts = 1 << 16;  // __SO_ACCEPTCON of the column Flags: listen(2) has been called

std::string place(const NetAddress& address, uint16_t port) {
  return "verbena/" + std::to_string(port) + "/" + address.text() + "/";
}

std::string claim_name(const std::string& place, const Claimant& claimant, const char* state) {
  char rest[64];
  std::snprintf(rest, sizeof rest, "%016llx/%u.%u/%s", static_cast<unsigned long long>(claimant.node),
                claimant.slot, claimant.generation, state);
  return place + rest;
}

socklen_t abstract_address(const std::string& name, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  name.copy(out->sun_path + 1, sizeof out->sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                std::min(name.size(), sizeof out->sun_path - 1));
}

int take_name(const std::string& name, Descriptor* out) {
  sockaddr_un address;
  const socklen_t size = abstract_address(name, &address);
  Descriptor bound{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (bound.fd < 0 || bind(bound.fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(bound.fd, SOMAXCONN) != 0)  // nobody accepts: each process that looks stays in the queue
    return errno;
  out->reset(bound.release());
  return 0;
}

// "<place><node>/<slot>.<generation>/<state>". False: another place's, or no claim.
bool parse(std::string_view name, const std::string& place, Claim* out) {
  if (name.substr(0, place.size()) != place) return false;
  const std::string_view rest = name.substr(place.size());
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out->node, 16);
  if (error != std::errc{} || end != rest.data() + 16) return false;
  out->name = name;
  out->listens = rest.ends_with("/listens");
  return out->listens || rest.ends_with("/asks");
}

// Columns of /proc/net/unix: Num RefCount Protocol Flags Type St Inode Path; '@' stands for the leading null
// byte. A name that nobody can connect to yet is no claim: its process will look at the others later.
void add_claims(const std::string& place, std::vector<Claim>* claims) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.rfind(" @");
    Claim claim;
    if (at == std::string::npos || !parse(std::string_view(line).substr(at + 2), place, &claim)) continue;
    unsigned flags = 0;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %x %*s %*s %" SCNu64, &flags, &claim.inode) != 2) continue;
    if (flags & kAccepts) claims->push_back(claim);
  }
}

// The list is no snapshot: a name may be missed while another one goes. It is not missed twice.
std::vector<Claim> claims_of(const std::string& place) {
  std::vector<Claim> claims;
  add_claims(place, &claims);
  add_claims(place, &claims);
  return claims;
}

struct Holder {
  bool is_gone = false;  // since the list was read
  bool is_this_user = false;
  pid_t pid = 0;
};

// Anybody may take a name. Those of other users do not count: their processes cannot share a port with ours.
Holder holder_of(const Claim& claim) {
  sockaddr_un address;
  const socklen_t size = abstract_address(claim.name, &address);
  const Descriptor asking{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (asking.fd < 0) return {false, true, 0};
  if (connect(asking.fd, reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return {errno == ECONNREFUSED, errno == EAGAIN, 0};  // EAGAIN: others ask as well
  ucred credentials{};
  socklen_t length = sizeof credentials;
  getsockopt(asking.fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
  return {false, credentials.uid == geteuid(), credentials.pid};
}

// " of the node <path>", as far as the process's environment says it.
std::string node_of(pid_t pid) {
  std::ifstream environment("/proc/" + std::to_string(pid) + "/environ");
  const std::string prefix = std::string(kNodeVariable) + "=";
  for (std::string variable; std::getline(environment, variable, '\0');)
    if (variable.starts_with(prefix)) return " of the node " + variable.substr(prefix.size());
  return "";
}

int refuse(const NetAddress& address, uint16_t port, pid_t pid, std::string* problem) {
  return fail(EADDRINUSE, problem,
              address.text(port) + " is listened at by process " + std::to_string(pid) + node_of(pid) +
                  ": end it, or take another address or port");
}

struct Asking {
  uint64_t inode, node;
  bool operator<(const Asking& other) const { return inode < other.inode; }
};

struct View {
  bool is_settled = true;  // false: a name went meanwhile, perhaps for another one that is not seen here
  bool is_own = false;     // another process of the node listens
  bool is_taken = false;   // a process of another node listens: `holder`
  pid_t holder = 0;
  std::set<Asking> asking;  // processes of other nodes
};

View look(const std::string& place, uint64_t node) {
  View view;
  for (const Claim& claim : claims_of(place)) {
    if (claim.node == node) {
      view.is_own |= claim.listens;
      continue;
    }
    const Holder holder = holder_of(claim);
    view.is_settled &= !holder.is_gone;
    if (!holder.is_this_user) continue;
    if (claim.listens) {
      view.is_taken = true;
      view.holder = holder.pid;
    } else {
      view.asking.insert({claim.inode, claim.node});
    }
  }
  return view;
}

// A process that asks, and those of other nodes that asked before: they may not have seen it.
class Intent {
 public:
  int ask(const std::string& name) { return name_.fd >= 0 ? 0 : take_name(name, &name_); }

  // True: all others see this process ask, or listen, before they go on.
  bool is_answered(const View& view, uint64_t node) {
    if (!before_) before_ = view.asking;
    std::erase_if(*before_, [&](const Asking& other) { return !view.asking.contains(other); });
    if (before_->empty()) return true;
    const bool gives_way =
        std::any_of(before_->begin(), before_->end(), [&](const Asking& other) { return other.node < node; });
    if (gives_way) withdraw();
    return false;
  }

 private:
  void withdraw() {
    name_.reset();
    before_.reset();
  }

  Descriptor name_;
  std::optional<std::set<Asking>> before_;
};

}  // namespace

int PortClaim::take(const NetAddress& address, uint16_t port, const Claimant& claimant,
                    std::string* problem) {
  const std::string where = place(address, port);
  const auto listen_there = [&] {
    const int error = take_name(claim_name(where, claimant, "listens"), &name_);
    return error == 0 ? 0 : fail_errno(error, problem, where);
  };
  const int64_t deadline = now_ns() + kPatience;
  Intent intent;
  // Another process of the node listens. It may end at any time, so those of other nodes that asked before
  // are waited for as ever: they see it, and are refused, or they do not go on.
  bool is_own = false;
  for (; now_ns() < deadline; nanosleep(&kPause, nullptr)) {
    if (const int error = intent.ask(claim_name(where, claimant, "asks")); error != 0)
      return fail_errno(error, problem, where);
    const View view = look(where, claimant.node);
    if (view.is_taken) return refuse(address, port, view.holder, problem);
    is_own = view.is_own;
    if (view.is_settled && intent.is_answered(view, claimant.node)) return listen_there();
  }
  if (is_own) return listen_there();
  return fail_errno(ETIMEDOUT, problem, "another node asks for " + where);
}

int find_other_claim(const NetAddress& address, uint16_t port, const std::function<uint64_t()>& node,
                     std::string* problem) {
  const std::string where = place(address, port);
  const int64_t deadline = now_ns() + kPatience;
  uint64_t id = node();
  for (;;) {
    const View view = look(where, id);
    if (!view.is_settled && now_ns() < deadline) continue;
    if (!view.is_taken) return 0;
    const uint64_t before = std::exchange(id, node());
    if (id == before || now_ns() >= deadline) return refuse(address, port, view.holder, problem);
  }
}

}  // namespace verbena::wire
