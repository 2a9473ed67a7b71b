// SPDX-License-Identifier: BSD-2-Clause
//
// What `verbena status` and rdma(8) know about a node: a copy of the shared memory of its processes, taken
// from outside.
// No process is disturbed, and waits are bounded. Nothing is written. Nothing that is read is trusted:
// offsets, indices and enumerations may have any value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "adapter/traffic.h"
#include "cm/id_table.h"
#include "fabric/device_table.h"
#include "fabric/node_directory.h"

namespace verbena {

// The other end of a QP, as far as the node knows it.
struct PeerSnapshot {
  uint32_t qpn = 0;     // 0: not connected
  std::string address;  // of another node, of which nothing else is known; "": this node
  uint32_t slot = 0;
  int32_t pid = 0;  // 0: the process has ended
  std::string program;
};

// The last completion with an error other than a flush.
struct ErrorSnapshot {
  uint64_t time = 0;    // ns, CLOCK_REALTIME; 0: there was none
  uint32_t status = 0;  // enum ibv_wc_status
  uint32_t vendor_err = 0;
  bool receive = false;    // of the receive queue
  bool has_wr_id = false;  // false: a receive completion that is not polled yet
  uint64_t wr_id = 0;
};

// ibv_open_device(3)
struct ContextSnapshot {
  uint32_t number = 0;
  uint32_t device = 0;
};

// A protection domain.
struct DomainSnapshot {
  uint32_t handle = 0;
  uint32_t context = 0;  // number of its context
  uint32_t device = 0;
};

struct QpSnapshot {
  uint32_t device = 0;
  uint32_t port = 0;  // 0: none yet
  uint32_t qpn = 0;
  uint32_t type = 0;   // enum ibv_qp_type
  uint32_t state = 0;  // enum ibv_qp_state
  uint32_t pd = 0;
  uint32_t send_cq = 0;
  uint32_t recv_cq = 0;
  uint32_t srq = 0;     // index + 1; 0: none
  uint32_t rq_psn = 0;  // the next one expected
  uint32_t sq_psn = 0;  // of the next request
  PeerSnapshot peer;
  uint64_t sends_outstanding = 0;  // work requests not completed
  uint64_t receives_posted = 0;    // work requests waiting for a message
  uint64_t requests_out = 0;
  uint64_t bytes_out = 0;
  uint64_t requests_in = 0;
  uint64_t bytes_in = 0;
  uint32_t rnr_naks = 0;
  uint32_t retries = 0;
  uint32_t dropped = 0;          // UC and UD: messages that the QP has dropped
  uint32_t lost = 0;             // UC and UD: messages to another node that could not be sent
  uint32_t qkey_violations = 0;  // UD
  uint64_t receives_taken = 0;   // work requests that a message has taken so far
  uint64_t state_since = 0;      // ns, CLOCK_REALTIME
  uint64_t rnr_since = 0;  // likewise: since then it waits for a receive request of its peer; 0: it does not
  bool rnr_is_endless = false;  // rnr_retry 7
  PortCountValues traffic{};    // through the port
  ErrorSnapshot error;
};

// A receive queue with several requesters: an SRQ, or the receive queue of a UD QP.
struct SrqSnapshot {
  uint32_t index = 0;
  bool of_program = false;  // an SRQ, not the receive queue of a UD QP
  bool is_xrc = false;
  uint32_t pd = 0;
  uint32_t cq = 0;  // XRC
  uint64_t capacity = 0;
  uint32_t max_sge = 0;
  uint64_t posted = 0;  // work requests waiting for a message
  uint32_t limit = 0;   // 0: not armed
};

struct CqSnapshot {
  uint32_t index = 0;
  uint32_t context = 0;  // number of its context
  uint64_t capacity = 0;
  uint64_t entries = 0;  // completions not polled, including those being written
  uint32_t armed = 0;    // enum Armed
  bool overrun = false;
  uint64_t events = 0;       // raised on the completion channel so far
  uint64_t events_read = 0;  // of those, by the program
  // It has entries that nobody polls, is not armed, and all its events are read: nothing would wake a thread
  // that waits for its event.
  bool is_asleep = false;

  double fill() const {  // 0 to 1
    return capacity == 0 ? 0 : static_cast<double>(entries) / static_cast<double>(capacity);
  }
};

struct MrSnapshot {
  uint32_t index = 0;
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
  int32_t peer_pid = 0;  // 0: no peer, or it has ended
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
  uint64_t bytes_out = 0;  // acknowledged by the other machine's kernel
  uint64_t bytes_in = 0;
  uint32_t retransmissions = 0;  // TCP segments
  uint32_t round_trip_us = 0;
};

struct ProcessSnapshot {
  uint32_t slot = 0;
  uint32_t generation = 0;
  int32_t pid = 0;
  std::string program;
  std::string problem;  // why the segment could not be read: "not answering", ...; "": it was
  std::vector<ContextSnapshot> contexts;  // up to kMaxListed of contexts and domains
  std::vector<DomainSnapshot> domains;
  std::vector<QpSnapshot> qps;
  std::vector<CqSnapshot> cqs;
  std::vector<SrqSnapshot> srqs;
  std::vector<MrSnapshot> mrs;
  // Known even if `problem` is set.
  std::vector<CmIdSnapshot> cm_ids;
  std::vector<CmGroupSnapshot> cm_groups;
  std::vector<ConnectionSnapshot> connections;
};

struct NodeSnapshot {
  std::string path;
  uint64_t taken_at = 0;  // ns, CLOCK_REALTIME
  std::string problem;    // why the node cannot be read; "": it can
  DeviceTable devices{};
  uint32_t ports_down = 0;  // port_bit()
  // By port (port_place()).
  std::array<uint32_t, kPortPlaces> stray_datagrams{};  // accepted by no queue pair
  std::array<uint32_t, kPortPlaces> qkey_violations{};
  std::array<uint32_t, kPortPlaces> pkey_violations{};
  std::array<uint64_t, kPacketDrops> packet_drops{};
  std::array<PastCounters, kPortPlaces> past{};  // of queue pairs that are destroyed
  std::array<PortCountValues, kPortPlaces> port_counts{};
  std::string cm_problem;  // why the connection manager's table cannot be read; "": it can, or there is none
  std::vector<ProcessSnapshot> processes;
};

// Reads the node at `path`. Waits at most 2 s in all for processes that do not answer.
NodeSnapshot look_at_node(const std::string& path);

// The same without connections to other nodes, and without looking twice at CQs that nobody polls
// (CqSnapshot::is_asleep).
NodeSnapshot look_at_objects(const std::string& path);

// Adds what the connection manager knows, for the processes that are in `node` already.
void look_at_cm(const NodeDirectory& directory, NodeSnapshot* node);

// Adds the connections to other nodes, of the processes that this user may inspect, in this network
// namespace.
void look_at_connections(NodeSnapshot* node);

// A name from shared memory, at most `size` bytes. Control and non-ASCII characters, which could steer a
// terminal, become '?'.
std::string printable(const char* text, size_t size);

// The paths of the nodes in `folder`, sorted by name.
std::vector<std::string> nodes_in(const std::string& folder);

}  // namespace verbena
