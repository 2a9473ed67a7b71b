// SPDX-License-Identifier: BSD-2-Clause
//
// The path to a queue pair that is reached by frames: of another node, or of a process of this node whose
// memory cannot be reached. Requests are appended to the stream to its process in order. The responder's
// answers name their numbers and finish them (requester.h). A broken connection loses and repeats nothing:
// what was in flight is sent again on the next one, and the responder knows what it has carried out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/objects/network.h"
#include "engine/objects/transport.h"
#include "wire/net_address.h"
#include "wire/process_id.h"

namespace verbena {

struct RemotePeer;
struct Qp;
struct SendRequest;

// What a path asks of the module. The caller holds send_lock of the queue pair.
class PathOwner {
 public:
  // The queue pair has something to send and no connection.
  virtual void seek(uint32_t qpn) = 0;
  // The queue pair has something in flight: the service thread checks its deadline.
  virtual void watch(Qp& qp) = 0;

 protected:
  ~PathOwner() = default;
};

// Under send_lock of the queue pair, except for what does not change.
struct RemotePath final : Transport {
  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override;
  bool is_synchronous() const override { return false; }
  bool leads_out() const override { return !(to == kThisNode); }
  uint32_t chunk_size() const override;
  VendorError find_path(Qp& qp) override;
  int was_replaced(Qp& qp) override;
  uint64_t patience_ns(const Qp& qp) const override;
  int64_t grace_ns(Qp& qp, int64_t now) override;
  void watch(Qp& qp) override;
  void expect_request(const Qp& qp, uint64_t number) const override;

  PathOwner* owner = nullptr;
  wire::NetAddress to;  // kThisNode: the peer is `process`
  wire::NetAddress from;
  wire::ProcessId process;
  uint32_t qpn = 0;
  uint64_t path_generation = 0;
  std::shared_ptr<RemotePeer> peer;  // nullptr: not found yet
  uint32_t epoch = 0;                // RemotePeer::epoch of the connection over which requests were sent
  uint64_t bulk = 0;                 // RemotePeer::bulks when the last chunk of the current request began
  bool is_watched = false;           // PathOwner::watch() was called
  // Any thread. A process there has accepted a connection and not refused it yet, or was asked which process
  // has the queue pair and has not said that none has.
  std::atomic<bool> is_called{false};
};

// The path of a queue pair that is reached by frames; nullptr: it has another transport. Under its send_lock.
RemotePath* path_of(const Qp& qp);

}  // namespace verbena
