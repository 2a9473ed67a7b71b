// SPDX-License-Identifier: BSD-2-Clause
//
// Two connected ends, and the topology that they are in: both in this process, or the far one at the peer of
// --peer, where `verbs-conformance --serve` runs.
#pragma once

#include <memory>
#include <optional>

#include "support/endpoint.h"
#include "support/fixture.h"
#include "support/host.h"

namespace conformance {

struct PairSpec {
  wire::MakeEnd both;
  wire::Connect path;                // `other` and `end` are filled in
  std::optional<wire::MakeEnd> far;  // where the far end is to be another than the near one
  bool is_connected = true;
  // The clause is about the end that answers, or receives: far is on the device under test then, and near at
  // the peer. In one process there is no difference; native() is for other pairs.
  bool tests_far = false;
};

// Makes the near and far ends of a test.
class Topology {
 public:
  explicit Topology(Device& device);  // throws NotTested when the peer does not answer
  Link& near() { return near_; }
  Link& far() { return far_ ? *far_ : near_; }
  Host& host() { return host_; }
  bool is_loopback() const { return far_ == nullptr; }

 private:
  Host host_;
  LoopbackLink near_{host_};
  std::unique_ptr<Link> far_;
};

class Pair {
 public:
  Pair(Topology& topology, const PairSpec& spec, Where where = Where::current());

  Endpoint near, far;
  // Both can carry out atomics on the other.
  bool has_atomics() const {
    return near.facts().atomics != IBV_ATOMIC_NONE && far.facts().atomics != IBV_ATOMIC_NONE;
  }
  ibv_mtu mtu() const { return std::min(near.facts().mtu, far.facts().mtu); }
  uint32_t mtu_bytes() const { return 128u << mtu(); }
  void connect(Where where = Where::current());
  HostedEnd& native();  // the near end's objects

 private:
  Topology& topology_;
  PairSpec spec_;
};

// Connects a QP of the test's own with an end; both are in RTS then. Throws what bring_to throws.
void connect(Device& device, ibv_qp* qp, Endpoint& end, Where where = Where::current());

// A test with a pair of ends, made when first asked for.
class PairTest : public DeviceTest {
 protected:
  Topology& topology() {
    if (!topology_) topology_.emplace(device());
    return *topology_;
  }
  Pair& pair(const PairSpec& spec = {}, Where where = Where::current()) {
    if (!pair_) pair_.emplace(topology(), spec, where);
    return *pair_;
  }
  Pair& new_pair(const PairSpec& spec = {}, Where where = Where::current()) {
    pair_.reset();
    return pair(spec, where);
  }
  Endpoint& near() { return pair().near; }
  Endpoint& far() { return pair().far; }

 private:
  std::optional<Topology> topology_;
  std::optional<Pair> pair_;
};

}  // namespace conformance
