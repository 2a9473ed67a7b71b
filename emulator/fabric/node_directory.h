// SPDX-License-Identifier: BSD-2-Clause
//
// The node directory: one file, <node>/directory, that every process of the node maps. It lists the adapters
// on the node (slots), the queue pair of each number (QPN table), and the devices.
//
// Who writes what:
// - Header and devices: the process that creates the node, before the file gets its name.
// - A slot: the process that holds its lock `life` (robust_lock.h). A process takes a slot by locking it, and
//   holds it until it closes the device or dies. The process that then locks it with EOWNERDEAD cleans up and
//   frees the slot.
// - A slot's counts of objects: the slot's process. Cleared when the slot is given back or reclaimed.
// - A device's event log, ports_down, addresses_gone: the holder of the file's lock (device_events.h).
// - A QPN entry: claimed by compare-and-swap by the owner of the QP; freed by the owner or by the process
//   that reclaims the owner's slot. The owner raises its slot's `numbers` before it claims one, and lowers it
//   after it has freed one: a process that reclaims a slot looks for entries only where `numbers` is not 0.
// - An entry of the multicast table: likewise (multicast_table.h).
// - A holder's entry: claimed by the process that adds it; freed by any process that finds the holder dead
//   (node_holders.h).
// - An instrument's entry: the process of the instrument (instruments.h).
// - `retired`: the process that removes the node (node_removal.h).
//
// The file may have lost its name: a cleaner of old files deletes what it likes. Its processes keep it open,
// and others reach it through them (open_node_file()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "adapter/layout.h"
#include "adapter/traffic.h"
#include "fabric/counted.h"
#include "fabric/device_events.h"
#include "fabric/device_table.h"
#include "fabric/flow_table.h"
#include "fabric/hazard_guard.h"
#include "fabric/hw_counters.h"
#include "fabric/instrument_entry.h"
#include "fabric/kept_descriptor.h"
#include "fabric/multicast_table.h"
#include "fabric/packet_drops.h"
#include "fabric/robust_lock.h"
#include "fabric/xrc_domains.h"

namespace verbena {

inline constexpr uint32_t kDirectoryMagic = 0x42'52'45'56;  // "VERB"
inline constexpr uint32_t kMaxSlots = 1024;
inline constexpr uint32_t kQpnTableSize = 1u << 18;  // QPs alive on a node at once
inline constexpr uint32_t kMaxHolders = 1024;

enum class SlotState : uint32_t { kFree = 0, kStarting = 1, kLive = 2 };

struct alignas(64) Slot {
  std::atomic<uint32_t> life;        // RobustLock; held by the adapter's service thread
  std::atomic<uint32_t> generation;  // incremented each time the slot is taken; never 0 for a taken slot
  std::atomic<SlotState> state;
  std::atomic<int32_t> pid;       // for display only (status, log lines): never used to reach the process
  char program[16];               // /proc/self/comm, for people
  std::atomic<uint32_t> numbers;  // an upper bound of the QPN entries that the process holds
  std::atomic<uint32_t> hazards_used;  // entries of hazards(slot) ever used
  std::atomic<uint32_t>
      holder;  // TID of the thread that holds `life`; the process that reclaims the slot holds it, too
  std::atomic<uint32_t> explained;  // enum LogLevel of the process: what it wants to be told (stray.h)
};
static_assert(sizeof(Slot) == 64);

// One 64-bit word per QPN: number (24 bits), slot (16 bits), index of the QP in its adapter (24 bits). 0:
// free.
struct QpnEntry {
  uint32_t qpn;
  uint32_t slot;
  uint32_t qp_index;
  static QpnEntry unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 40), static_cast<uint32_t>(word >> 24) & 0xffff,
            static_cast<uint32_t>(word) & 0xffffff};
  }
  uint64_t pack() const { return uint64_t{qpn} << 40 | uint64_t{slot} << 24 | qp_index; }
};

struct DirectoryHeader {
  uint32_t magic;
  uint32_t layout_version;
  uint64_t size;                    // of the file
  uint64_t node_id;                 // random; distinguishes one creation of the node from the next
  uint64_t boot;                    // of the machine: what has another one has no living process
  std::atomic<uint32_t> retired;    // 1: the node is being removed, and nobody joins it any more
  std::atomic<uint32_t> next_qpn;   // rotates through the 24-bit space
  std::atomic<uint32_t> next_xrcd;  // number of the XRC domain created last
  std::atomic<uint32_t> next_slot;  // where the search for a free slot begins, so that slots rotate, too
  std::atomic<uint64_t> multicast_version;  // multicast_table.h
  std::atomic<uint32_t> multicast_used;     // entries ever used
  std::atomic<uint32_t> xrc_domains_used;   // highest number of XRC domain handles ever used
  std::atomic<uint32_t> xrc_qps_used;       // the same of XRC_RECV queue pair handles
  std::atomic<uint64_t> flow_version;       // flow_table.h
  std::atomic<uint32_t> flows_used;         // entries ever used
  DeviceTable devices;
  // port_bit(): the port is down. A copy of the state in the devices' event logs, in one word for requesters.
  alignas(64) std::atomic<uint32_t> ports_down;
  // Bit i: the machine does not have devices.network.addresses[i] now. Bit d of ports_lowered: the ports of
  // device d went down because none of these addresses is left (device_events.h, follow_addresses()).
  std::atomic<uint32_t> addresses_gone;
  std::atomic<uint32_t> ports_lowered;
  // The counters below are by port (port_place()).
  // Datagrams with another Q_Key than their target's; requests and datagrams with a P_Key of another
  // partition. Saturated like the 16 bits of PortInfo:Q_KeyViolations and P_KeyViolations (vol. 1, 14.2.5.6).
  alignas(64) std::atomic<uint32_t> qkey_violations[kPortPlaces];
  std::atomic<uint32_t> pkey_violations[kPortPlaces];
  // Stray datagrams, by the port whose address they came to. Their queue pair does not exist, is not UD, or
  // does not receive in its state. The counters wrap around.
  std::atomic<uint32_t> stray_datagrams[kPortPlaces];
  // Which process receives the packets of RoCE v2 (engine/roce_transport/reading_lease.h).
  alignas(64) std::atomic<uint64_t> packet_reader;
  std::atomic<uint64_t> packet_poller;
  alignas(64) std::atomic<uint64_t> packet_drops[kPacketDrops];
  // Each process adds to them.
  alignas(64) std::atomic<uint64_t> past_counters[kPortPlaces][kPastCounters];
  std::atomic<uint64_t> port_counts[kPortPlaces][kPortCounts];  // PortCount
  alignas(64) InstrumentEntry instruments[kMaxInstruments];
};

constexpr size_t page_aligned(size_t n) { return (n + 4095) / 4096 * 4096; }
inline constexpr size_t kSlotsOffset = page_aligned(sizeof(DirectoryHeader));
inline constexpr size_t kHazardsOffset = kSlotsOffset + sizeof(Slot) * kMaxSlots;

// The mapped directory. Closed by its destructor. Movable, not copyable.
class NodeDirectory {
 public:
  NodeDirectory() = default;
  NodeDirectory(NodeDirectory&& other) noexcept;
  NodeDirectory& operator=(NodeDirectory&& other) noexcept;
  ~NodeDirectory();

  // Writes a new directory file at `path`, which must not exist. Returns an errno value. ENOMEM, ENOSPC: the
  // file system cannot hold it. Memory is reserved now, so that no process gets SIGBUS later.
  static int create(const char* path, const DeviceTable& devices);

  // Maps the directory at `path` (absolute). ENOENT; EPERM: the file or its folder is not this user's alone
  // (private_folder.h); EPROTO: not a directory of this layout version, or damaged.
  int open(const char* path);

  // The same for a file that is open, and which stays the caller's. Errors as open(), without ENOENT.
  int open_file(int file);

  // The file's; -1: there was no descriptor left, or the program has closed it.
  int file() const { return file_.fd(); }

  // A new descriptor of the file, with locks of its own (flock(2), fcntl(2)), close-on-exec. -1: there is no
  // descriptor left, or the program has closed ours.
  int reopen() const;

  bool is_open() const { return base_ != nullptr; }
  DirectoryHeader& header() const { return *reinterpret_cast<DirectoryHeader*>(base_); }
  const DeviceTable& devices() const { return *devices_; }  // as they were when the directory was opened
  Slot& slot(uint32_t index) const {                        // index < kMaxSlots
    return *std::launder(reinterpret_cast<Slot*>(base_ + kSlotsOffset + index % kMaxSlots * sizeof(Slot)));
  }

  // Returns how many there were with this one.
  uint64_t count_drop(PacketDrop kind) const {
    return header().packet_drops[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed) + 1;
  }

  Hazard& hazard(uint32_t slot, uint32_t index) const {  // index < kHazardsPerSlot
    const size_t number = slot % kMaxSlots * kHazardsPerSlot + index % kHazardsPerSlot;
    return *std::launder(reinterpret_cast<Hazard*>(base_ + kHazardsOffset + number * sizeof(Hazard)));
  }
  HazardRecords hazards(uint32_t slot) const { return {&hazard(slot, 0), &this->slot(slot).hazards_used}; }
  MulticastEntry& multicast_entry(uint32_t index) const;  // index < kMulticastEntries

  FlowEntry& flow_entry(uint32_t index) const;  // index < kFlowEntries

  XrcDomainHandle& xrc_domain_handle(uint32_t index) const;  // index < kMaxXrcDomainHandles

  // True: the process that took slot `index` as `generation` is alive. A few loads from shared memory.
  bool alive(uint32_t index, uint32_t generation) const {
    const Slot& s = slot(index);
    if (s.generation.load(std::memory_order_acquire) != generation) return false;
    const uint32_t holder = s.life.load(std::memory_order_acquire) & (kOwnerDied | kTidMask);
    return s.state.load(std::memory_order_acquire) == SlotState::kLive &&
           holder == s.holder.load(std::memory_order_relaxed);
  }

  // The same for a Worker, packed.
  bool worker_alive(uint32_t packed) const;

  // True: a living process holds `slot`, in whatever state and generation. For observers from outside.
  bool occupied(uint32_t slot) const;

  // The calling thread has locked the slot for its own process.
  void note_holder(uint32_t slot) const;

  // Gives `qp_index` of `slot` a QP number that no QP on the node has now, the one released longest ago. 0:
  // the table is full. QPNs 0 and 1 (the special QPs) and 0xffffff (multicast) are never used.
  uint32_t claim_qpn(uint32_t slot, uint32_t qp_index) const;
  void release_qpn(uint32_t qpn, uint32_t slot) const;  // `slot` is the calling process's
  // Moves the number to another QP. `from`: its entry now, or its last entry if it is free by now; nullptr:
  // it is free. False: another QP has the number or its entry.
  bool take_over_qpn(uint32_t qpn, const QpnEntry* from, uint32_t slot, uint32_t qp_index) const;
  void release_all_qpns(uint32_t slot) const;

  // The number of objects of `kind` that the adapter in `slot` has on `device`; device < kMaxDevices.
  std::atomic<uint32_t>& count(uint32_t device, Counted kind, uint32_t slot) const;
  void clear_counts(uint32_t slot) const;

  std::atomic<uint64_t>& holder(uint32_t index) const;  // index < kMaxHolders; node_holders.h

  // The event log of the device; device < kMaxDevices.
  DeviceEventLog& events(uint32_t device) const;

  // SRQ numbers (ibv_get_srq_num(3)) share the number space and the table with QPs: no SRQ has the number of
  // a QP.
  uint32_t claim_srqn(uint32_t slot, uint32_t srq_index) const {
    return claim_qpn(slot, srq_index | kSrqFlag);
  }
  void release_srqn(uint32_t srqn, uint32_t slot) const { release_qpn(srqn, slot); }
  bool find_srqn(uint32_t srqn, uint32_t* slot, uint32_t* srq_index) const;

  // Finds the QP with this number. False: there is none.
  bool find_qpn(uint32_t qpn, QpnEntry* out) const;

 private:
  static constexpr uint32_t kSrqFlag = 1u << 23;  // in QpnEntry::qp_index
  bool find_number(uint32_t number, QpnEntry* out) const;
  std::atomic<uint64_t>* qpn_table() const;

  std::byte* base_ = nullptr;
  size_t size_ = 0;
  KeptDescriptor file_;
  std::unique_ptr<const DeviceTable> devices_;  // a copy: nobody changes it, and damage does not reach it
};

}  // namespace verbena
