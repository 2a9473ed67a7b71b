// SPDX-License-Identifier: BSD-2-Clause
//
// Which queue pairs of the node are attached to which multicast group (ibv_attach_mcast(3)): a table in the
// node directory. A group is its GID; it exists as long as somebody is attached to it.
//
// An entry is written by the process that attaches, and freed by it or by whoever reclaims its slot. It goes
// free -> claimed -> member -> free, each step one compare-and-swap on `state`; the rest is written while it
// is claimed. A reader takes what it read for true only if `state` has not changed meanwhile: its use count
// has.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace verbena {

class NodeDirectory;

inline constexpr uint32_t kMulticastEntries = 8192;

struct MulticastEntry {
  enum class Phase : uint8_t { kFree = 0, kClaimed = 1, kMember = 2 };
  struct State {
    uint16_t uses;      // counts the claims of this entry
    uint32_t slot;      // 16 bits
    uint32_t qp_index;  // 24 bits
    Phase phase;
    static constexpr State unpack(uint64_t w) {
      return {static_cast<uint16_t>(w >> 48), static_cast<uint32_t>(w >> 32) & 0xffff,
              static_cast<uint32_t>(w >> 8) & 0xffffff, static_cast<Phase>(w & 0xff)};
    }
    constexpr uint64_t pack() const {
      return uint64_t{uses} << 48 | uint64_t{slot & 0xffff} << 32 | uint64_t{qp_index & 0xffffff} << 8 |
             static_cast<uint64_t>(phase);
    }
  };
  alignas(64) std::atomic<uint64_t> state;
  std::atomic<uint64_t> gid[2];
  std::atomic<uint32_t> slot_generation;
  std::atomic<uint32_t> incarnation;   // SharedQp::incarnation
  std::atomic<uint32_t> device;  // of the QP, index in the device table
  std::atomic<uint32_t> lid;
};
static_assert(sizeof(MulticastEntry) == 64);

using MulticastGid = std::array<uint8_t, 16>;

struct MulticastMember {
  uint32_t slot = 0;
  uint32_t slot_generation = 0;
  uint32_t qp_index = 0;
  uint32_t incarnation = 0;
};

// What a device allows (ibv_device_attr: max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach).
struct MulticastLimits {
  uint32_t groups;
  uint32_t members_of_group;
  uint32_t members;
};

class MulticastTable {
 public:
  explicit MulticastTable(const NodeDirectory& directory) : directory_(directory) {}

  // Of a QP of the calling process. 0, also if it is attached already; ENOMEM: a limit of `device` is
  // reached, or the table is full.
  int attach(const MulticastMember& member, const MulticastGid& gid, uint32_t lid, uint32_t device,
             const MulticastLimits& limits) const;

  // EINVAL: it is not attached to that group with that LID. Messages that are under way may still arrive.
  int detach(const MulticastMember& member, const MulticastGid& gid, uint32_t lid) const;

  // Is the QP attached to any group?
  bool attached(const MulticastMember& member) const;

  // Frees every entry of the slot (its process is gone).
  void release_all(uint32_t slot) const;

  // Grows with every change: a snapshot of this version is complete as long as it stays.
  uint64_t version() const;

  // The members of the group, each QP once, with what is_still() needs to know.
  struct Found {
    MulticastMember member;
    uint32_t entry;
    uint64_t state;
  };
  std::vector<Found> members(const MulticastGid& gid) const;
  bool is_still(const Found& found) const;

 private:
  MulticastEntry& entry(uint32_t index) const;
  uint32_t used() const;
  template <typename Callback>
  void for_each(Callback&& callback) const;
  bool within_limits(const MulticastGid& gid, uint32_t device, const MulticastLimits& limits) const;
  void changed() const;

  const NodeDirectory& directory_;
};

}  // namespace verbena
