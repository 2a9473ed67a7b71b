// SPDX-License-Identifier: BSD-2-Clause
//
// The members of the node's multicast groups (ibv_attach_mcast(3)): a table in the node directory of queue
// pairs and groups. A group is its GID. It exists while a queue pair is attached to it.
//
// An entry is written by the process that attaches. It is freed by that process, or by the process that
// reclaims its slot. Its states are free -> claimed -> member -> free, each step one compare-and-swap on
// `state`. The rest of the entry is written while it is claimed. What a reader has read is valid only if
// `state`, which includes a use count, has not changed meanwhile.
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

// The limits of a device (ibv_device_attr: max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach).
struct MulticastLimits {
  uint32_t groups;
  uint32_t members_of_group;
  uint32_t members;
};

class MulticastTable {
 public:
  explicit MulticastTable(const NodeDirectory& directory) : directory_(directory) {}

  // Attaches a QP of the calling process. 0, also if it is attached already; ENOMEM: a limit of `device` is
  // reached, or the table is full.
  int attach(const MulticastMember& member, const MulticastGid& gid, uint32_t lid, uint32_t device,
             const MulticastLimits& limits) const;

  // EINVAL: the QP is not attached to that group with that LID. Messages in transit may still arrive.
  int detach(const MulticastMember& member, const MulticastGid& gid, uint32_t lid) const;

  // True: the QP is attached to some group.
  bool attached(const MulticastMember& member) const;

  // The groups that queue pairs of the process in `slot` are attached to, each once.
  std::vector<MulticastGid> groups_of(uint32_t slot) const;

  // Frees every entry of the slot, whose process is gone.
  void release_all(uint32_t slot) const;

  // Incremented with every change: a snapshot of this version is complete while the version stays.
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
