// SPDX-License-Identifier: BSD-2-Clause
//
// What lies in shared memory: the segment of one adapter, that is, of one process that has opened a device.
// The owner maps it, and so does every process that has a QP connected to one of the owner's. Everything is
// addressed by offset or index; a reader checks both before use, since a segment is a stranger's memory.
//
// "owner" is the process the segment belongs to; "requester" is the process whose QP is connected to the QP
// in question (an RC or UC receive queue has exactly one); "producer" is anybody who may append to a CQ: the
// owner and the requesters of the QPs that use it. Each cache line below says who writes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "adapter/change_set.h"

namespace verbena {

inline constexpr uint32_t kSegmentMagic = 0x47'45'53'56;  // "VSEG"
inline constexpr uint32_t kLayoutVersion = 16;  // of everything in shared memory; counts up with every change
inline constexpr size_t kCacheLine = 64;

inline constexpr uint32_t kMaxQpsPerProcess = 1u << 16;
inline constexpr uint32_t kMaxCqsPerProcess = 1u << 15;
inline constexpr uint32_t kMaxSrqsPerProcess = 1u << 17;
inline constexpr uint32_t kMaxMrsPerProcess = 1u << 21;  // keys: memory regions, and as many memory windows

// A message of up to this many bytes travels in the completion entry itself, a longer one of up to
// kBounceSize in the bounce buffer of its receive slot; what is longer still is placed by the initiator.
inline constexpr uint32_t kCqeInlineSize = 96;
inline constexpr uint32_t kStampedInlineSize = kCqeInlineSize - 8;  // in a CQ with time stamps
inline constexpr uint32_t kCqeFirstLine = 32;  // so much of the payload lies in an entry's first cache line
inline constexpr uint32_t kBounceSize = 256;

// ---- completion queue ------------------------------------------------------------------------------------

// Who works on something: a slot of the node and the low bits of its generation, in 24 bits.
struct Worker {
  uint32_t slot;        // 10 bits
  uint32_t generation;  // 14 bits
  static constexpr uint32_t kGenerationMask = 0x3fff;
  static constexpr Worker unpack(uint32_t w) { return {w & 0x3ff, w >> 10 & kGenerationMask}; }
  constexpr uint32_t pack() const { return (generation & kGenerationMask) << 10 | (slot & 0x3ff); }
};

// An entry's life: free (its last user's lap is over and the head has passed it) -> claimed -> published. The
// claim is a word of its own, beside the ring, that producers alone touch: claiming does not wait for a line
// that the consumer looks at. Laps count from 1, so that fresh memory is an empty ring.
//
// ClaimWord: lap (32 bits) | Worker (24 bits) | 0. CqeState: lap (32 bits) | CqeKind.
struct ClaimWord {
  uint32_t lap;  // low bits of (position >> ring order) + 1
  uint32_t worker;
  static constexpr ClaimWord unpack(uint64_t w) {
    return {static_cast<uint32_t>(w >> 32), static_cast<uint32_t>(w >> 8) & 0xffffff};
  }
  constexpr uint64_t pack() const { return uint64_t{lap} << 32 | uint64_t{worker & 0xffffff} << 8; }
};

enum class CqeKind : uint8_t {
  kNothing = 0,
  kPublished = 1,  // complete; written by the producer
  kEager = 2,     // complete, but the message's bytes still have to be scattered to the receive buffers
  kTaken = 3,      // consumed or purged out of turn; written by the owner, the head passes over it
};

struct CqeState {
  uint32_t lap;
  CqeKind kind;
  static constexpr CqeState unpack(uint64_t w) {
    return {static_cast<uint32_t>(w >> 32), static_cast<CqeKind>(w & 0xff)};
  }
  constexpr uint64_t pack() const { return uint64_t{lap} << 32 | static_cast<uint64_t>(kind); }
};

enum CqeFlags : uint8_t {
  kCqeReceive = 1,  // belongs to the receive queue: `index` counts receive WQEs, else send WQEs
  kCqeWithImmediate = 2,
  kCqeInline = 4,  // landed in `payload`, else (with kEager) in the receive slot's bounce buffer
  kCqeSolicited = 8,
  kCqeFromShared = 16,      // receive: `index` is a slot of the queue that SharedQp::srq names
  kCqeWithInvalidate = 32,  // `immediate` is the rkey that was invalidated, host byte order
  kCqeDatagram = 64,        // UD: a DatagramSource stands before the payload, the message begins with the GRH's 40 bytes
  // `qp_index` and `qp_incarnation` are an SRQ's; an XrcSource stands before the payload
  kCqeXrc = 128,
};

// What a UD completion says of the datagram's origin: the first bytes of Cqe::payload, landed or not.
struct DatagramSource {
  static constexpr uint8_t kWithGrh = 0x80;
  uint32_t qpn;
  uint16_t lid;
  uint8_t sl;
  uint8_t path_bits;  // 7 bits, and kWithGrh: the 40 bytes are a GRH, and not just room for one
};
static_assert(sizeof(DatagramSource) == 8);

// Through which queue pair of whatever adapter an XRC SRQ's message came.
struct XrcSource {
  uint32_t qpn;         // of the XRC_RECV queue pair
  uint32_t source_qpn;  // of the XRC_SEND queue pair
};
static_assert(sizeof(XrcSource) == sizeof(DatagramSource));

// Two adjacent lines, the second used by messages above 32 bytes: a stream of messages is one sequential
// stream of lines for either side's prefetcher, and an 8-byte message is one line.
struct alignas(2 * kCacheLine) Cqe {
  std::atomic<uint64_t> state;
  uint32_t qp_index;  // in the CQ owner's QP table
  uint32_t qp_incarnation;  // SharedQp::incarnation, so that an entry outliving its QP is recognised
  uint32_t index;     // low 32 bits of the WQE's running number
  uint32_t byte_len;
  uint32_t immediate;  // network byte order
  uint8_t status;      // enum ibv_wc_status
  uint8_t opcode;      // enum ibv_wc_opcode, IBV_WC_RECV_* told by kCqeReceive
  uint8_t flags;       // CqeFlags
  uint8_t vendor_err;
  union {
    uint64_t wr_id;                   // of a send completion; the owner knows a receive's
    uint8_t payload[kCqeInlineSize];  // with kCqeInline
  };

  // When the completion was published, in ticks of the device's clock (device_clock.h). Only of a kCqStamped CQ.
  void set_stamp(uint64_t time) { std::memcpy(payload + kStampedInlineSize, &time, sizeof time); }
  uint64_t stamp() const {
    uint64_t time;
    std::memcpy(&time, payload + kStampedInlineSize, sizeof time);
    return time;
  }
};
static_assert(sizeof(Cqe) == 2 * kCacheLine);

// kRaising: a producer has found it armed and is about to write the event. If it does not get there, dead or
// stopped, the next producer writes one in its place: an event too many does no harm, a missing one does.
enum class Armed : uint32_t { kNo = 0, kSolicited = 1, kNext = 2, kRaising = 3 };

// SharedCq::armed (adapter/arming.h). `raising` counts the raisings begun: so the end of one, late, is not taken for the end
// of the next, whose producer may have died meanwhile.
struct Arming {
  Armed state;
  uint32_t raising;  // 30 bits
  static constexpr Arming unpack(uint32_t w) { return {static_cast<Armed>(w & 3), w >> 2}; }
  constexpr uint32_t pack() const { return raising << 2 | static_cast<uint32_t>(state); }
};

enum CqFlags : uint32_t {
  kCqStamped = 1,         // producers write the time into each entry's last 8 bytes (Cqe::set_stamp)
  kCqIgnoresOverrun = 2,  // a completion that finds no room is lost, and nothing else happens
};

// When an armed CQ raises its event (ibv_modify_cq(3)): after `count` completions or when `period` has passed since the
// first that no event has told of, whichever comes first; a 0 means that there is no such limit.
struct Moderation {
  uint16_t count;
  uint16_t period;  // microseconds
  static constexpr Moderation unpack(uint32_t w) {
    return {static_cast<uint16_t>(w), static_cast<uint16_t>(w >> 16)};
  }
  constexpr uint32_t pack() const { return uint32_t{period} << 16 | count; }
  constexpr bool reached(uint32_t completions) const {
    return (count != 0 && completions >= count) || (count == 0 && period == 0);
  }
};

// The ring of a CQ, and where its producers and its consumer are.
struct SharedCqRing {
  // Line 0, written by producers: where to look for the next free entry. Every entry before it is claimed.
  alignas(kCacheLine) std::atomic<uint64_t> tail;
  // Line 1, written by the owner: everything before the head has been consumed. Read by producers that have gone
  // once round since they looked last. The rest does not change while the ring is in use.
  alignas(kCacheLine) std::atomic<uint64_t> head;
  uint64_t offset;        // Cqe[1 << order]
  uint64_t claim_offset;  // uint64_t[1 << order], ClaimWord
  uint32_t order;         // log2 of the number of entries
};

struct SharedCq {
  // Line 0, written by the owner at creation, destruction and resizing.
  alignas(kCacheLine) std::atomic<uint32_t> alive;  // 0: the entry is not in use
  uint32_t channel;                                 // number of the completion channel's FIFO; 0: none
  uint64_t user_handle;                             // what the completion channel reports
  uint32_t flags;                                   // CqFlags
  // rings[ring_generation & 1] is in use; resizing makes the other one and moves on. What had landed in earlier
  // generations' rings has been scattered when scattered_generation says so, too.
  std::atomic<uint32_t> ring_generation;
  std::atomic<uint32_t> scattered_generation;
  // Lines 1 to 4.
  SharedCqRing rings[2];
  // Line 5, written by the owner (arming) and by the producer that finds it armed.
  alignas(kCacheLine) std::atomic<uint32_t> armed;  // Arming, packed
  std::atomic<uint32_t> overrun;  // pending, set by producers
  std::atomic<uint64_t> raised;   // events written to the channel, or counted as lost, in the CQ's life
  std::atomic<uint64_t> lost;     // events that did not fit into the FIFO: the owner writes them later
  std::atomic<uint32_t> moderation;   // Moderation, packed; 0: none
  std::atomic<uint32_t> unreported;   // moderated: completions since the last event, counted by producers
  std::atomic<uint32_t> timer_asked;  // moderated: the owner is to raise the event when the period is over
};
static_assert(sizeof(SharedCq) == 6 * kCacheLine);

// ---- receive queue ----

struct WqeSge {
  uint64_t address;
  uint32_t length;
  uint32_t lkey;

  // Owner, of a receive slot that is his again. Whoever has fed it before may be looking at this moment where
  // the message goes that lay in it: what he sees of the new list tells him that the message is in its
  // buffers (observe()).
  void post(uint64_t new_address, uint32_t new_length, uint32_t new_lkey) {
    std::atomic_ref(address).store(new_address, std::memory_order_release);
    std::atomic_ref(length).store(new_length, std::memory_order_release);
    std::atomic_ref(lkey).store(new_lkey, std::memory_order_release);
  }
  // Requester, after the message: the list that was posted for it, or, when the message has been scattered,
  // anything.
  WqeSge observe() const {
    auto& self = const_cast<WqeSge&>(*this);
    return {std::atomic_ref(self.address).load(std::memory_order_acquire),
            std::atomic_ref(self.length).load(std::memory_order_acquire), 0};
  }
};
static_assert(sizeof(WqeSge) == 16);

struct ReceiveWqe {
  uint32_t sge_count;
  uint32_t epoch;   // of a shared queue: as in ReadyWord
  uint32_t length;  // of a shared queue: bytes it takes, saturated
  uint32_t abandoned;  // of a shared queue, set by its taker: the completion is lost, the slot is the owner's again
  WqeSge sge[];  // room for SharedQp::rq_max_sge

  // As WqeSge::post() and observe().
  void post_count(uint32_t count) { std::atomic_ref(sge_count).store(count, std::memory_order_release); }
  uint32_t observe_count() const {
    return std::atomic_ref(const_cast<uint32_t&>(sge_count)).load(std::memory_order_acquire);
  }
};

// One word per receive slot: is there a WQE of this lap, how many bytes does it take, and did its keys hold
// when it was posted (then `epoch` is SegmentHeader::mr_epoch of that moment, else kNeverValid).
struct ReadyWord {
  static constexpr uint32_t kNeverValid = 0xffffff;
  uint8_t lap;      // low byte of (running number >> ring order) + 1: never 0 in lap 0, as fresh memory is
  uint32_t epoch;   // 24 bits
  uint32_t length;  // saturated
  static constexpr ReadyWord unpack(uint64_t w) {
    return {static_cast<uint8_t>(w >> 56), static_cast<uint32_t>(w >> 32) & 0xffffff,
            static_cast<uint32_t>(w)};
  }
  constexpr uint64_t pack() const { return uint64_t{lap} << 56 | uint64_t{epoch & 0xffffff} << 32 | length; }
};

// ---- shared receive queue ----

// A receive queue with many requesters: an SRQ of the program, or the receive queue of a UD QP. WQEs lie in
// slots, in no order; the ring of OrderWords says in which order they are to be taken. A slot is free again
// when its completion has been polled, in whatever order that happens; the owner alone counts
// (adapter/shared_receive_ring.h).
struct SharedSrq {
  // Line 0, written by the owner at creation.
  alignas(kCacheLine) std::atomic<uint32_t> incarnation;  // counts the queues that had this table entry
  std::atomic<uint32_t> in_use;
  uint64_t order_offset;    // uint64_t[1 << order], OrderWord
  uint64_t wqe_offset;      // ReceiveWqe, `stride` bytes each
  uint64_t bounce_offset;  // kBounceSize bytes each
  uint32_t order;
  uint32_t stride;
  uint32_t max_sge;
  uint32_t pd;
  uint32_t cq;    // XRC: the CQ of its completions
  uint32_t srqn;  // XRC: its number on the node
  uint32_t xrcd;  // XRC: its domain
  // Line 1, written by takers: where to look for the next WQE. Every one before it is taken.
  alignas(kCacheLine) std::atomic<uint64_t> head;
  // Line 2, written by the owner.
  alignas(kCacheLine) std::atomic<uint64_t> posted;
  // Line 3, written by the owner (arming) and by the taker that finds fewer WQEs left.
  alignas(kCacheLine) std::atomic<uint32_t> limit;  // 0: not armed
  std::atomic<uint32_t> limit_reached;              // pending, set by takers
  std::atomic<uint32_t> scatter_wanted;             // XRC: as kPendingScatter of a QP
  // SharedQp::requester_waits is set at some QP that takes from here, or `waiters`
  std::atomic<uint32_t> requesters_wait;
  // XRC: processes whose requests found no WQE, kWaits | Worker::pack(); 0: free. Posting wakes them.
  static constexpr uint32_t kWaits = 1u << 24;
  std::atomic<uint32_t> waiters[8];
};
static_assert(sizeof(SharedSrq) == 4 * kCacheLine);

// ---- queue pair ----

// Whether the responder takes requests, as one word that a requester compares with every request:
//   generation (56 bits) | state (8 bits, enum ibv_qp_state).
// The generation grows whenever the QP begins to take requests (on the way to RTR) and when it ceases (ERR,
// RESET, destruction). Within a generation nothing in line 0 changes.
struct ResponderState {
  uint64_t generation;
  uint8_t state;
  static constexpr ResponderState unpack(uint64_t w) { return {w >> 8, static_cast<uint8_t>(w)}; }
  constexpr uint64_t pack() const { return generation << 8 | state; }
};

// Reasons a requester sets in SharedQp::pending_flags; the owner's service thread acts on them.
enum PendingFlag : uint32_t {
  kPendingCommEst = 1u << 0,       // first message arrived in RTR
  kPendingAccessError = 1u << 1,   // responder: IBV_EVENT_QP_ACCESS_ERR
  kPendingRequestError = 1u << 2,  // responder: IBV_EVENT_QP_REQ_ERR
  kPendingFatal = 1u << 3,         // responder: local error, told by a completion; the QP goes to ERR
  kPendingScatter = 1u << 4,       // messages that have landed are to be scattered, a request waits for it
  kPendingOverrun = 1u << 5,       // XRC_RECV: an SRQ's CQ had no room for its message: IBV_EVENT_QP_FATAL
};

inline constexpr uint32_t kFlushing = 1u << 31;

// What SharedQp::dest_index says of a queue pair whose peer is reached by frames: it is in no table here.
inline constexpr uint32_t kRemoteIndex = UINT32_MAX;

struct SharedQp {
  // Line 0, written by the owner, read by the requester with every request.
  alignas(kCacheLine) std::atomic<uint64_t> responder_state;
  uint32_t qpn;
  uint32_t dest_qpn;
  uint32_t dest_slot;
  uint32_t dest_slot_generation;
  uint32_t dest_index;
  uint32_t dest_incarnation;
  uint32_t incarnation;   // counts the QPs that had this table entry; 0: never used
  uint32_t access;  // qp_access_flags
  uint32_t pd;
  uint8_t type;  // enum ibv_qp_type
  uint8_t min_rnr_timer;
  uint8_t path_mtu;
  uint8_t max_dest_rd_atomic;
  uint32_t rq_psn;  // the first PSN expected in this generation
  uint32_t left_in;  // XRC_RECV, not in use any more: 1 + the state in which its maker left it to its other holders
  // Line 1, written by the owner at creation.
  alignas(kCacheLine) uint64_t rq_ready_offset;  // uint64_t[1 << rq_order], ReadyWord
  uint64_t rq_wqe_offset;                        // ReceiveWqe, rq_stride bytes each
  uint64_t rq_bounce_offset;                    // kBounceSize bytes each
  uint32_t rq_order;
  uint32_t rq_stride;
  uint32_t rq_max_sge;
  uint32_t recv_cq;
  uint32_t send_cq;
  uint32_t device;
  std::atomic<uint32_t> in_use;
  uint32_t srq;  // index + 1 of the SharedSrq that the receive WQEs come from; 0: the QP's own ring
  std::atomic<uint32_t> qkey;  // UD
  uint32_t xrcd;               // XRC_RECV: its domain's number on the node
  // Line 2, written by the requester.
  alignas(kCacheLine) std::atomic<uint32_t> expected_psn;
  std::atomic<uint32_t> msn;
  std::atomic<uint64_t> rq_taken;  // receive WQEs consumed
  std::atomic<uint64_t> requests_in;
  std::atomic<uint64_t> bytes_in;
  std::atomic<uint64_t> requester_generation;  // the generation the values above belong to
  // With `srq`: slot + 1 of the WQE that a message in the middle has taken; or 0. The owner takes it out when it puts
  // an end to the message, marked with kFlushing while it completes it.
  std::atomic<uint32_t> srq_slot;
  // Line 3, written by the requester when something is the matter; read by the owner all the time.
  alignas(kCacheLine) std::atomic<uint32_t> pending_flags;
  // a request found no receive WQE: posting one wakes the requester
  std::atomic<uint32_t> requester_waits;
  std::atomic<uint32_t> dropped;          // UC and UD: messages the QP has dropped
  std::atomic<uint32_t> qkey_violations;  // UD
  // XRC_RECV, written by the owner: what queries from other processes ask for (engine/xrc/shared_path.h).
  std::atomic<uint32_t> path_version;  // odd: the words are being written
  std::atomic<uint32_t> path_words[10];
  // Line 4, written by the owner's requester; for status.
  alignas(kCacheLine) std::atomic<uint64_t> requests_out;
  std::atomic<uint64_t> bytes_out;
  std::atomic<uint64_t> rq_posted;
  std::atomic<uint64_t> sq_posted;
  std::atomic<uint64_t> sq_completed;
  std::atomic<uint32_t> send_psn;
  std::atomic<uint32_t> rnr_naks;
  std::atomic<uint32_t> retries;
  std::atomic<uint32_t> lost;  // UC and UD: messages to another node that found no way there in time
  std::atomic<uint64_t> events_told;  // XRC_RECV: for handles in other processes (engine/xrc/xrc_shared_qp.h)
};
static_assert(sizeof(SharedQp) == 5 * kCacheLine);

// ---- memory regions ----

// lkey = index << 9 | tag, rkey = lkey | 0x100: never equal, and the low 8 bits are the tag, as the interface
// for memory windows wants it (ibv_inc_rkey(3)). Index 0 is never given, so neither key is ever 0.
struct MemoryKey {
  uint32_t index;
  bool remote;
  uint8_t tag;
  static constexpr MemoryKey unpack(uint32_t key) {
    return {key >> 9, (key & 0x100) != 0, static_cast<uint8_t>(key)};
  }
  constexpr uint32_t pack() const { return index << 9 | (remote ? 0x100u : 0u) | tag; }
};

// What a key stands for. A window has an rkey only, the null region an lkey only.
enum class KeyKind : uint32_t {
  kRegion = 0,
  kNullRegion = 1,  // takes every address: `address` is where writes vanish, `iova` where zeros are read
  kWindow1 = 2,     // memory window of type 1: for every QP of the PD
  kWindow2 = 3,     // type 2B: for the QP `qpn` of the PD
};

// Written by the owner while `valid` is 0. A bound window is unbound by its owner or, of type 2, by the peer of
// its QP: whoever takes `valid` to 0 by compare-and-swap.
struct alignas(kCacheLine) SharedMr {
  std::atomic<uint32_t> valid;  // 0, or 0x100 | tag; of a window: while it is bound
  uint32_t pd;
  uint32_t access;    // IBV_ACCESS_*
  uint32_t last_tag;  // of the last use
  uint64_t iova;      // what initiators call the first byte
  uint64_t length;    // bytes
  uint64_t address;   // where it lies in the owner's address space
  KeyKind kind;
  uint32_t qpn;  // kWindow2: of the QP that it was bound on
};
static_assert(sizeof(SharedMr) == kCacheLine);

// ---- the segment ----

// Serialises atomics on those words of an adapter's memory whose addresses lead to it. 0, or slot + 1 of the
// holder in the high half and its slot generation in the low half: a dead holder's lock may be taken over. A
// stopped holder's may not, so there are many: he keeps those waiting who want the same word, and few others.
struct alignas(kCacheLine) AtomicsLock {
  std::atomic<uint64_t> holder;
};
inline constexpr uint32_t kAtomicsLocks = 16;
constexpr uint32_t atomics_lock_of(uint64_t address) {
  return static_cast<uint32_t>((address >> 3) * 0x9e3779b97f4a7c15u >> 60);
}

struct SegmentHeader {
  // Line 0, written by the owner before anybody else sees the segment.
  alignas(kCacheLine) uint32_t magic;
  uint32_t layout_version;
  uint64_t size;  // of the mapping
  uint64_t node_id;
  uint32_t slot;
  uint32_t slot_generation;
  int32_t pid;  // for process_vm_writev(2), only while the slot's holder lives
  uint32_t reserved;
  // Line 1, written by the owner when keys end: prevalidated receive WQEs of older epochs are checked again.
  alignas(kCacheLine) std::atomic<uint32_t> mr_epoch;
  std::atomic<uint32_t> qp_high_water;  // table entries ever used, for status
  std::atomic<uint32_t> cq_high_water;
  std::atomic<uint32_t> mr_high_water;
  std::atomic<uint32_t> srq_high_water;
  std::atomic<uint32_t> lost_events;  // some SharedCq::lost is not 0; set by producers
  // some pending flag or overrun is set; by peers: PeerAdapter::ring_doorbell()
  std::atomic<uint32_t> doorbell;
  // Lines 2 to 17, written by initiators: atomics on one word of this adapter's memory take turns.
  AtomicsLock atomics_locks[kAtomicsLocks];
};

// Which table entries have something to tell the owner (PeerAdapter::report). Written by peers and by the owner.
struct Changes {
  alignas(kCacheLine) ChangeSet<kMaxQpsPerProcess> qps;
  alignas(kCacheLine) ChangeSet<kMaxCqsPerProcess> cqs;
  alignas(kCacheLine) ChangeSet<kMaxSrqsPerProcess> srqs;
};

inline constexpr uint64_t kChangesOffset = 4096;
inline constexpr uint64_t kQpTableOffset = kChangesOffset + 8 * 4096;
static_assert(kChangesOffset + sizeof(Changes) <= kQpTableOffset);
inline constexpr uint64_t kCqTableOffset = kQpTableOffset + sizeof(SharedQp) * kMaxQpsPerProcess;
inline constexpr uint64_t kSrqTableOffset = kCqTableOffset + sizeof(SharedCq) * kMaxCqsPerProcess;
inline constexpr uint64_t kMrTableOffset = kSrqTableOffset + sizeof(SharedSrq) * kMaxSrqsPerProcess;
inline constexpr uint64_t kHeapOffset = kMrTableOffset + sizeof(SharedMr) * uint64_t{kMaxMrsPerProcess};
static_assert(kHeapOffset % 4096 == 0);
static_assert(sizeof(SegmentHeader) <= kChangesOffset);

}  // namespace verbena
