// SPDX-License-Identifier: BSD-2-Clause
//
// What the doctor finds: each check adds one or more of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/net_address.h"

namespace verbena::tool {

enum class Verdict {
  kGood,
  kNote,  // works, but somebody may want to know
  kBad,   // something would fail
};

struct Finding {
  Verdict verdict;
  std::string where;   // what was looked at
  std::string what;    // what was found
  std::string remedy;  // "" when there is nothing to do
};

using Findings = std::vector<Finding>;

// doctor_program.cc: `name` is looked for as execvp(3) does.
void examine_program(const std::string& name, Findings* findings);

// doctor_machine.cc: the libraries, the device file, limits, variables.
void examine_installation(Findings* findings);
void examine_rdma_libraries(Findings* findings);
void examine_device_file(Findings* findings);
void examine_limits(Findings* findings);
void examine_environment(Findings* findings);

// doctor_machine.cc: is librdmacm.so.1 there?
bool has_connection_manager();

// doctor_node.cc: makes a node of its own, lets processes live on it and reach into each other, and lets a
// program look for its device.
void examine_node(Findings* findings);

// doctor_peer.cc: calls the node at `host`, an address or a name, as one of this user's would.
struct PeerProbe {
  std::string host;
  uint16_t port = 0;
  wire::NetAddress from;  // all zero: as the machine's routes say
  std::string key_file;   // "": the user's own key
};
void examine_peer(const PeerProbe& probe, Findings* findings);

}  // namespace verbena::tool
