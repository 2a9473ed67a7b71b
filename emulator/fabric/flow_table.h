// SPDX-License-Identifier: BSD-2-Clause
//
// The node's flow rules (ibv_create_flow(3)): a table in the node directory, which every sender of an
// Ethernet frame reads.
//
// An entry is written by the process that creates the rule. It is freed by that process, or by the process
// that reclaims its slot. Its states are those of an entry of the multicast table (multicast_table.h). What a
// reader has read is valid only if `state` has not changed meanwhile. Counters are written by the senders.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "fabric/multicast_table.h"

namespace verbena {

class NodeDirectory;

inline constexpr uint32_t kFlowEntries = 2048;

// All multi-byte fields have the byte order of the frame. 0 where the frame has no such header.
struct FlowFields {
  std::array<uint8_t, 6> destination_mac;
  std::array<uint8_t, 6> source_mac;
  uint16_t ether_type;                // that follows the last VLAN tag (ibv_create_flow(3), NOTES)
  uint16_t vlan_tag;                  // of the first (outer) tag
  std::array<uint8_t, 16> source_ip;  // IPv4: the first four bytes
  std::array<uint8_t, 16> destination_ip;
  uint32_t flow_label;    // IPv6, 20 bits
  uint8_t protocol;       // IPv4's, or the next header of IPv6
  uint8_t traffic_class;  // IPv4's type of service
  uint8_t hop_limit;      // IPv4's time to live
  uint8_t ip_version;     // 4, 6
  uint16_t source_port;   // of TCP and UDP, in the first fragment
  uint16_t destination_port;
  uint8_t has_vlan_tag;  // 1
  uint8_t is_multicast;  // 1: the destination is a group, or all
  uint8_t reserved[2];

  bool operator==(const FlowFields&) const = default;
};
static_assert(sizeof(FlowFields) == 64);

enum class FlowKind : uint8_t {
  kNormal = 0,
  kAllDefault = 1,        // frames that no other rule takes
  kMulticastDefault = 2,  // those of them that go to a group
  kSniffer = 3,           // every frame
};

struct FlowRule {
  FlowFields values{}, mask{};
  uint16_t priority = 0;  // 0 is looked at first
  FlowKind kind = FlowKind::kNormal;
  bool drops = false;   // takes the frame, and nobody gets it
  bool passes = false;  // does not take the frame: others get it as well
  uint32_t device = 0;  // index in the device table
  MulticastMember qp;   // that gets the frames

  // Of the same frames, and looked at together: each of their queue pairs gets a frame.
  bool is_beside(const FlowRule& other) const {
    return kind == other.kind && priority == other.priority && values == other.values && mask == other.mask;
  }
};

struct FlowEntry {
  using Words = std::array<std::atomic<uint64_t>, sizeof(FlowFields) / sizeof(uint64_t)>;
  alignas(64) std::atomic<uint64_t> state;  // MulticastEntry::State
  std::atomic<uint64_t> number;             // counts the rules of the node: older rules have smaller numbers
  std::atomic<uint32_t> slot_generation;
  std::atomic<uint32_t> incarnation;  // SharedQp::incarnation
  std::atomic<uint32_t> device;
  std::atomic<uint32_t> action;  // priority (16 bits) | FlowKind << 16 | drops << 24 | passes << 25
  alignas(64) Words values;
  alignas(64) Words mask;
  // By senders, while they hold a hazard guard on the adapter in `state`.
  alignas(64) std::atomic<uint64_t> frames;
  std::atomic<uint64_t> bytes;
};
static_assert(sizeof(FlowEntry) == 256);

class FlowTable {
 public:
  explicit FlowTable(const NodeDirectory& directory) : directory_(directory) {}

  // Names a rule of the table while it exists.
  struct Handle {
    uint32_t entry = 0;
    uint64_t state = 0;
  };

  // Adds a rule for a QP of the calling process. ENOMEM: the device has `limit` rules already, or the table
  // is full.
  int add(const FlowRule& rule, uint32_t limit, Handle* out) const;
  // Ends the rule, whose entry stays the caller's with its counters, until free_entry(). Frames in transit
  // may still arrive.
  void end(const Handle& handle) const;
  void free_entry(const Handle& handle) const;

  // True: a rule gives frames to the QP.
  bool has_rule(const MulticastMember& qp) const;

  // Frees every entry of the slot, whose process is gone.
  void release_all(uint32_t slot) const;

  // Incremented with every change: a snapshot of this version is complete while the version stays.
  uint64_t version() const;

  struct Found {
    FlowRule rule;
    Handle handle;
    uint64_t number;
  };
  // All rules: by kind, then priority, then age.
  std::vector<Found> rules() const;
  bool is_still(const Handle& handle) const;

  // A frame has matched the rule.
  void count(const Handle& handle, uint32_t bytes) const;
  struct Counts {
    uint64_t frames = 0, bytes = 0;
  };
  Counts counts(const Handle& handle) const;

 private:
  FlowEntry& entry(uint32_t index) const;
  uint32_t used() const;
  void changed() const;
  uint32_t rules_of(uint32_t device) const;

  const NodeDirectory& directory_;
};

}  // namespace verbena
