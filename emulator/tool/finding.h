// SPDX-License-Identifier: BSD-2-Clause
//
// The findings of the doctor. Each check adds one or more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/net_address.h"

namespace verbena::tool {

enum class Verdict {
  kGood,
  kNote,  // works, with a restriction
  kBad,   // programs would fail
};

struct Finding {
  Verdict verdict;
  std::string where;   // what was examined
  std::string what;    // what was found
  std::string remedy;  // "": nothing to do
};

using Findings = std::vector<Finding>;

// doctor_program.cc: looks for `name` as execvp(3) does.
void examine_program(const std::string& name, Findings* findings);

// doctor_program.cc: one finding if the program has more rights than its user, so that it sees no device.
void examine_rights(const std::string& name, Findings* findings);

// doctor_machine.cc: the libraries, the device file, limits, variables.
void examine_installation(Findings* findings);
void examine_rdma_libraries(Findings* findings);
void examine_device_file(Findings* findings);
void examine_limits(Findings* findings);
void examine_environment(Findings* findings);

// doctor_machine.cc: can librdmacm.so.1 be loaded?
bool has_connection_manager();

// doctor_node.cc: makes a node of its own, with processes that access each other's memory and a program that
// looks for its device.
void examine_node(Findings* findings);

// doctor_peer.cc: connects to the node at `host`, an address or a name, as a program of this user would.
struct PeerProbe {
  std::string host;
  uint16_t port = 0;
  wire::NetAddress from;  // all zero: by the machine's routes
  std::string key_file;   // "": the user's own key
};
void examine_peer(const PeerProbe& probe, Findings* findings);

// doctor_roce.cc: sends RoCE v2 packets to `host` and waits for answers.
struct RocePeerProbe {
  std::string host;
  wire::NetAddress from;    // of this machine
  uint32_t active_mtu = 0;  // of the device that `verbena run` would make, bytes
};
void examine_roce_peer(const RocePeerProbe& probe, Findings* findings);

}  // namespace verbena::tool
