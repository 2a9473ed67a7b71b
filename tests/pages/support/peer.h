// SPDX-License-Identifier: BSD-2-Clause
//
// The other side in a process of its own: this program again, in one of the roles of roles.cc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace verbena::pages {

inline constexpr char kRoleOption[] = "--role";

// main()'s answer: 0 when the role was played to its end, 2 for a role that is none.
int play_role(int count, char** arguments);

class Peer {
 public:
  // `role`: "echo", "memory" or "hello" (roles.cc). `port`: where "hello" calls.
  Peer(const std::string& role, const std::string& host, uint16_t port = 0);
  ~Peer();  // kills it if it still runs
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  uint16_t port() const { return port_; }  // where it listens; 0: it does not
  void kill();
  int wait();  // its exit status; -1: ended by a signal

 private:
  pid_t child_ = -1;
  uint16_t port_ = 0;
};

}  // namespace verbena::pages
