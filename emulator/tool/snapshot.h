// SPDX-License-Identifier: BSD-2-Clause
//
// What `verbena status` knows about a node: a copy of what lies in the shared memory of its processes, taken
// from outside. Nobody is disturbed or waited for beyond a bound, nothing is written, and nothing that is
// read is trusted: offsets, indices and enumerations may be anything.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cm/id_table.h"
#include "fabric/device_table.h"
#include "fabric/node_directory.h"

namespace verbena::tool {

// The other end of a QP, as far as the node knows it.
struct PeerSnapshot {
  uint32_t qpn = 0;     // 0: not connected
  std::string address;  // of another node, of which nothing else is known; "": this one
  uint32_t slot = 0;
  int32_t pid = 0;  // 0: that process is gone
  std::string program;
};

struct QpSnapshot {
  uint32_t device = 0;
  uint32_t qpn = 0;
  uint32_t type = 0;   // enum ibv_qp_type
  uint32_t state = 0;  // enum ibv_qp_state
  uint32_t send_cq = 0;
  uint32_t recv_cq = 0;
  PeerSnapshot peer;
  uint64_t sends_outstanding = 0;  // work requests not completed
  uint64_t receives_posted = 0;    // work requests waiting for a message
  uint64_t requests_out = 0;
  uint64_t bytes_out = 0;
  uint64_t requests_in = 0;
  uint64_t bytes_in = 0;
  uint32_t rnr_naks = 0;
  uint32_t retries = 0;
  uint32_t dropped = 0;          // UC and UD: messages that came
  uint32_t lost = 0;             // the same: that were to go
  uint32_t qkey_violations = 0;  // UD
};

// A receive queue with many requesters: an SRQ, or the receive queue of a UD QP.
struct SrqSnapshot {
  uint32_t index = 0;
  uint32_t pd = 0;
  uint64_t capacity = 0;
  uint32_t max_sge = 0;
  uint64_t posted = 0;  // work requests waiting for a message
  uint32_t limit = 0;   // 0: not armed
};

struct CqSnapshot {
  uint32_t index = 0;
  uint64_t capacity = 0;
  uint64_t entries = 0;  // completions not polled, those being written included
  uint32_t armed = 0;    // enum Armed
  bool overrun = false;
  uint64_t events = 0;  // raised on the completion channel so far
};

struct MrSnapshot {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint32_t pd = 0;
  uint32_t access = 0;  // IBV_ACCESS_*
  uint64_t iova = 0;
  uint64_t address = 0;
  uint64_t length = 0;
};

// An id of the connection manager (emulator/cm/id_table.h).
struct CmIdSnapshot {
  cm::IdFacts facts{};
  uint32_t backlog = 0;
  int32_t peer_pid = 0;  // 0: none, or gone
  std::string peer_program;
};

struct CmGroupSnapshot {
  uint32_t id = 0;  // number of the id that has joined
  cm::Gid mgid{};
  bool send_only = false;
};

// A connection to a process of another node.
struct ConnectionSnapshot {
  std::string local, remote;  // addresses
  bool begun_here = false;
  uint64_t bytes_out = 0;  // that the other machine has acknowledged
  uint64_t bytes_in = 0;
  uint32_t retransmissions = 0;  // of the kernel's: packets that were lost on the way
  uint32_t round_trip_us = 0;
};

struct ProcessSnapshot {
  uint32_t slot = 0;
  uint32_t generation = 0;
  int32_t pid = 0;
  std::string program;
  std::string problem;  // why there is nothing below: "not answering", ...; "" when there is
  std::vector<QpSnapshot> qps;
  std::vector<CqSnapshot> cqs;
  std::vector<SrqSnapshot> srqs;
  std::vector<MrSnapshot> mrs;
  std::vector<CmIdSnapshot> cm_ids;  // also of a process that does not answer
  std::vector<CmGroupSnapshot> cm_groups;
  std::vector<ConnectionSnapshot> connections;  // likewise
};

struct NodeSnapshot {
  std::string path;
  std::string problem;  // why the node cannot be read; "" when it can
  DeviceTable devices{};
  uint32_t ports_down = 0;                              // bit d: of device d
  std::array<uint32_t, kMaxDevices> stray_datagrams{};  // by device: that no queue pair took
  std::array<uint32_t, kMaxDevices> qkey_violations{};
  std::string cm_problem;  // why nothing is known of the connection manager; "" also when nobody uses it
  std::vector<ProcessSnapshot> processes;
};

// Looks at the node at `path`. Waits for processes that do not answer at most two seconds altogether.
NodeSnapshot look_at_node(const std::string& path);

// The part of it that the connection manager knows, for the processes that `node` has already.
void look_at_cm(const NodeDirectory& directory, NodeSnapshot* node);

// The connections to other nodes of those processes that this user may look at, in this network namespace.
void look_at_connections(NodeSnapshot* node);

// Names come from shared memory: bounded, and nothing in them that could steer a terminal.
std::string printable(const char* text, size_t size);

// The nodes that lie in `folder`, in order of their names.
std::vector<std::string> nodes_in(const std::string& folder);

}  // namespace verbena::tool
