// SPDX-License-Identifier: BSD-2-Clause
//
// The layout of shared memory: the segment of one adapter, that is, of one process that has opened a device.
// The owner maps it, and so does every process with a QP connected to one of the owner's. Everything is
// addressed by offset or index. A reader checks both before use, because another process may have damaged the
// segment.
//
// Roles:
// - owner: the process that the segment belongs to.
// - requester: the process whose QP is connected to the QP in question. An RC or UC receive queue has exactly
//   one.
// - producer: a process that may append to a CQ, that is, the owner and the requesters of the QPs that use
//   the CQ.
// Each cache line below says who writes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena {

inline constexpr uint32_t kSegmentMagic = 0x47'45'53'56;  // "VSEG"
// of everything in shared memory; incremented with every change
inline constexpr uint32_t kLayoutVersion = 37;
inline constexpr size_t kCacheLine = 64;

inline constexpr uint32_t kMaxQpsPerProcess = 1u << 16;
inline constexpr uint32_t kMaxCqsPerProcess = 1u << 15;
inline constexpr uint32_t kMaxSrqsPerProcess = 1u << 17;
inline constexpr uint32_t kMaxMrsPerProcess = 1u << 21;  // keys: memory regions, and as many memory windows

// A message of up to this many bytes travels in the completion entry. A longer one of up to kBounceSize bytes
// travels in the bounce buffer of its receive slot. A longer one of up to kLongestBounced bytes may travel in
// the bounce ring of its queue pair (adapter/bounce_ring.h). Anything else is placed by the requester.
inline constexpr uint32_t kCqeInlineSize = 96;
inline constexpr uint32_t kStampedInlineSize = kCqeInlineSize - 8;  // in a CQ with time stamps
inline constexpr uint32_t kCqeFirstLine = 32;  // bytes of the payload in an entry's first cache line
inline constexpr uint32_t kBounceSize = 256;
inline constexpr uint64_t kBounceRingSize = 128 * 1024;  // a power of two
inline constexpr uint32_t kLongestBounced = 16 * 1024;

// ---- completion queue ------------------------------------------------------------------------------------

// A process that works on something: a slot of the node and the low bits of the slot's generation, in 24
// bits.
struct Worker {
  uint32_t slot;        // 10 bits
  uint32_t generation;  // 14 bits
  static constexpr uint32_t kGenerationMask = 0x3fff;
  static constexpr Worker unpack(uint32_t w) { return {w & 0x3ff, w >> 10 & kGenerationMask}; }
  constexpr uint32_t pack() const { return (generation & kGenerationMask) << 10 | (slot & 0x3ff); }
};

// The states of an entry: free (its last user's lap is over and the head has passed it) -> claimed ->
// published. The claim is a word of its own, beside the ring, that producers alone touch: a claim does not
// wait for a line that the consumer looks at. Laps count from 1, so that fresh memory is an empty ring.
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
  kEager = 2,      // complete, but the message's bytes must still be scattered to the receive buffers
  kTaken = 3,      // consumed or purged out of order; written by the owner, the head passes over it
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
  // the bytes are in `payload`; without it, a kEager entry has them in the receive slot's bounce buffer or,
  // of a message above kBounceSize, in the bounce ring: `payload` then begins with their position there
  kCqeInline = 4,
  kCqeSolicited = 8,
  kCqeFromShared = 16,      // receive: `index` is a slot of the queue that SharedQp::srq names
  kCqeWithInvalidate = 32,  // `immediate` is the rkey that was invalidated, host byte order
  // UD: a DatagramSource precedes the payload, and the message begins with the GRH's 40 bytes
  kCqeDatagram = 64,
  // `qp_index` and `qp_incarnation` are an SRQ's; an XrcSource precedes the payload
  kCqeXrc = 128,
};

// The source of a UD datagram: the first bytes of Cqe::payload, eager or not.
struct DatagramSource {
  static constexpr uint8_t kWithGrh = 0x80, kChecksumsRight = 0x80;
  uint32_t qpn;
  uint16_t lid;
  uint8_t sl;         // 4 bits, and kChecksumsRight: of an Ethernet frame (rules/frame_checksum.h)
  uint8_t path_bits;  // 7 bits, and kWithGrh: the 40 bytes are a GRH, not just space for one
};
static_assert(sizeof(DatagramSource) == 8);

// The queue pairs that a message to an XRC SRQ came through, on whatever adapter.
struct XrcSource {
  uint32_t qpn;         // of the XRC_RECV queue pair
  uint32_t source_qpn;  // of the XRC_SEND queue pair
};
static_assert(sizeof(XrcSource) == sizeof(DatagramSource));

// Two adjacent cache lines. The second is used by messages above 32 bytes. A stream of messages is one
// sequential stream of lines for the prefetchers of both sides, and an 8-byte message is one line.
struct alignas(2 * kCacheLine) Cqe {
  std::atomic<uint64_t> state;
  uint32_t qp_index;        // in the CQ owner's QP table
  uint32_t qp_incarnation;  // SharedQp::incarnation, to recognise an entry that has outlived its QP
  uint32_t index;           // low 32 bits of the WQE's running number
  uint32_t byte_len;
  uint32_t immediate;  // network byte order
  uint8_t status;      // enum ibv_wc_status
  uint8_t opcode;      // enum ibv_wc_opcode; IBV_WC_RECV_* if kCqeReceive is set
  uint8_t flags;       // CqeFlags
  uint8_t vendor_err;
  union {
    uint64_t wr_id;                   // of a send completion; the owner knows the wr_id of a receive
    uint8_t payload[kCqeInlineSize];  // with kCqeInline
  };

  // The publication time of the completion, in ticks of the device's clock (device_clock.h). Only of a
  // kCqStamped CQ.
  void set_stamp(uint64_t time) { std::memcpy(payload + kStampedInlineSize, &time, sizeof time); }
  uint64_t stamp() const {
    uint64_t time;
    std::memcpy(&time, payload + kStampedInlineSize, sizeof time);
    return time;
  }
};
static_assert(sizeof(Cqe) == 2 * kCacheLine);

// kRaising: a producer has found the CQ armed and is about to write the event. If that producer dies or is
// stopped first, the next producer writes an event in its place. A superfluous event does no harm; a missing
// one does.
enum class Armed : uint32_t { kNo = 0, kSolicited = 1, kNext = 2, kRaising = 3 };

// SharedCq::armed (adapter/arming.h). `raising` counts the raisings begun. The late end of one raising is
// therefore not mistaken for the end of the next, whose producer may have died meanwhile.
struct Arming {
  Armed state;
  uint32_t raising;  // 30 bits
  static constexpr Arming unpack(uint32_t w) { return {static_cast<Armed>(w & 3), w >> 2}; }
  constexpr uint32_t pack() const { return raising << 2 | static_cast<uint32_t>(state); }
};

enum CqFlags : uint32_t {
  kCqStamped = 1,         // producers write the time into each entry's last 8 bytes (Cqe::set_stamp)
  kCqIgnoresOverrun = 2,  // a completion that does not fit is dropped without any other effect
};

// When an armed CQ raises its event (ibv_modify_cq(3)): after `count` completions, or when `period` has
// passed since the first unreported completion, whichever comes first. 0: no such limit.
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
  // Line 1, written by the owner: every entry before the head has been consumed. A producer reads it again
  // after each lap. The rest does not change while the ring is in use.
  alignas(kCacheLine) std::atomic<uint64_t> head;
  uint64_t offset;        // Cqe[1 << order]
  uint64_t claim_offset;  // uint64_t[1 << order], ClaimWord
  uint32_t order;         // log2 of the number of entries
};

struct SharedCq {
  // Line 0, written by the owner at creation, destruction and resizing.
  alignas(kCacheLine) std::atomic<uint32_t> alive;  // 0: the entry is not in use
  uint32_t channel;                                 // number of the completion channel's FIFO; 0: none
  uint64_t user_handle;                             // the value that the completion channel reports
  uint32_t flags;                                   // CqFlags
  // rings[ring_generation & 1] is in use. Resizing sets up the other one and increments ring_generation.
  // Eager data in the rings of earlier generations has been scattered once scattered_generation has the same
  // value.
  std::atomic<uint32_t> ring_generation;
  std::atomic<uint32_t> scattered_generation;
  uint32_t context;                   // number of the context that it was created in (ListedObject)
  std::atomic<uint64_t> events_read;  // by the program, from the completion channel; of `raised`
  // Lines 1 to 4.
  SharedCqRing rings[2];
  // Line 5, written by the owner (arming) and by the producer that finds it armed.
  alignas(kCacheLine) std::atomic<uint32_t> armed;  // Arming, packed
  std::atomic<uint32_t> overrun;                    // set by producers, acted on by the owner
  // events written to the channel, or counted as lost, since the CQ was created
  std::atomic<uint64_t> raised;
  std::atomic<uint64_t> lost;         // events that did not fit into the FIFO; the owner writes them later
  std::atomic<uint32_t> moderation;   // Moderation, packed; 0: none
  std::atomic<uint32_t> unreported;   // moderated: completions since the last event, counted by producers
  std::atomic<uint32_t> timer_asked;  // moderated: the owner must raise the event when the period is over
};
static_assert(sizeof(SharedCq) == 6 * kCacheLine);

// ---- receive queue ----

struct WqeSge {
  uint64_t address;
  uint32_t length;
  uint32_t lkey;

  // Owner, of a receive slot that it owns again. The previous requester may still be looking at the slot to
  // see where its message goes. The new list tells that requester that the message has been scattered to its
  // buffers (observe()).
  void post(uint64_t new_address, uint32_t new_length, uint32_t new_lkey) {
    std::atomic_ref(address).store(new_address, std::memory_order_release);
    std::atomic_ref(length).store(new_length, std::memory_order_release);
    std::atomic_ref(lkey).store(new_lkey, std::memory_order_release);
  }
  // Requester, after the message: the list that was posted for it. If the message has been scattered, the
  // result may be anything.
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
  uint32_t length;  // of a shared queue: capacity in bytes, saturated
  // of a shared queue, set by its taker: the completion is lost, and the slot belongs to the owner again
  uint32_t abandoned;
  WqeSge sge[];  // room for SharedQp::rq_max_sge

  // As WqeSge::post() and observe().
  void post_count(uint32_t count) { std::atomic_ref(sge_count).store(count, std::memory_order_release); }
  uint32_t observe_count() const {
    return std::atomic_ref(const_cast<uint32_t&>(sge_count)).load(std::memory_order_acquire);
  }
};

// One word per receive slot.
// - lap: there is a WQE of this lap.
// - length: its capacity in bytes.
// - epoch: SegmentHeader::mr_epoch at posting time if its keys were valid then, else kNeverValid.
struct ReadyWord {
  static constexpr uint32_t kNeverValid = 0xffffff;
  uint8_t lap;      // low byte of (running number >> ring order) + 1: never 0 in lap 0, unlike fresh memory
  uint32_t epoch;   // 24 bits
  uint32_t length;  // saturated
  static constexpr ReadyWord unpack(uint64_t w) {
    return {static_cast<uint8_t>(w >> 56), static_cast<uint32_t>(w >> 32) & 0xffffff,
            static_cast<uint32_t>(w)};
  }
  constexpr uint64_t pack() const { return uint64_t{lap} << 56 | uint64_t{epoch & 0xffffff} << 32 | length; }
};

// ---- shared receive queue ----

// What takers compare of a WQE in a queue with many requesters. They do not touch the WQE itself, which its
// owner reads and writes, unless the message goes straight to its buffers.
struct OrderEntry {
  std::atomic<uint64_t> word;   // OrderWord
  std::atomic<uint64_t> ready;  // ReadyWord without its lap; written before `word`
};
static_assert(sizeof(OrderEntry) == 16);

// A receive queue with many requesters: an SRQ of the program, or the receive queue of a UD QP. WQEs lie in
// slots, in no order. The ring of OrderEntries gives the order in which they are taken. A slot is free again
// when its completion has been polled; completions may be polled in any order. Only the owner counts free
// slots (adapter/shared_receive_ring.h).
struct SharedSrq {
  // Line 0, written by the owner at creation.
  alignas(kCacheLine) std::atomic<uint32_t> incarnation;  // counts the queues that had this table entry
  std::atomic<uint32_t> in_use;
  uint64_t order_offset;   // OrderEntry[2 << order]
  uint64_t wqe_offset;     // ReceiveWqe, `stride` bytes each
  uint64_t bounce_offset;  // kBounceSize bytes each
  uint32_t order;
  uint32_t stride;
  uint32_t max_sge;
  uint32_t pd;
  uint32_t cq;    // XRC: the CQ of its completions
  uint32_t srqn;  // its number on the node; 0: not an SRQ, but the receive queue of a UD QP
  uint32_t xrcd;  // XRC: its domain
  // Line 1, written by takers: where to look for the next WQE. Every WQE before it is taken.
  alignas(kCacheLine) std::atomic<uint64_t> head;
  // Line 2, written by the owner.
  alignas(kCacheLine) std::atomic<uint64_t> posted;
  // Line 3, written by the owner (arming) and by the taker that finds fewer WQEs left than the limit.
  alignas(kCacheLine) std::atomic<uint32_t> limit;  // 0: not armed
  std::atomic<uint32_t> limit_reached;              // set by takers, acted on by the owner
  std::atomic<uint32_t> scatter_wanted;             // XRC: as kPendingScatter of a QP
  // SharedQp::requester_waits is set in some QP that takes from here, or `waiters` is not empty
  std::atomic<uint32_t> requesters_wait;
  // XRC: processes whose requests found no WQE: kWaits | Worker::pack(). 0: free. Posting wakes these
  // processes.
  static constexpr uint32_t kWaits = 1u << 24;
  std::atomic<uint32_t> waiters[8];
  // written by the owner when it resizes the queue; growth_offset first. SrqGrowth[kMaxSrqGrowths]
  std::atomic<uint32_t> growths;
  uint64_t growth_offset;
  // Line 4, written by the owner at creation: tag matching (adapter/tag_list.h).
  alignas(kCacheLine) uint64_t tag_offset;  // SharedTag[tag_count]; 0: the queue matches no tags
  uint64_t tag_address;                     // the same in the owner's address space
  uint32_t tag_count;
  // Line 5, TagPhase: written by the owner, and by requesters whose message matched no tag.
  alignas(kCacheLine) std::atomic<uint64_t> tag_phase;
};
static_assert(sizeof(SharedSrq) == 6 * kCacheLine);

// Tag matching: how many messages met no tag, and up to which tag the list is used. Tags that the program
// adds before it knows of all unexpected messages are not used: the order of messages would be lost
// (ibv_post_srq_ops(3), "phase synchronization").
struct TagPhase {
  uint16_t unexpected;  // modulo 2^16, as mlx5 counts (mlx5_wqe_tm_seg::sw_cnt)
  uint64_t enabled;     // number of the last tag that is in use, 48 bits
  static constexpr uint64_t kNumberMask = (uint64_t{1} << 48) - 1;
  static constexpr TagPhase unpack(uint64_t w) { return {static_cast<uint16_t>(w >> 48), w & kNumberMask}; }
  constexpr uint64_t pack() const { return uint64_t{unexpected} << 48 | (enabled & kNumberMask); }
};

enum class TagState : uint8_t {
  kFree = 0,    // the owner's
  kPosted = 1,  // to be matched; TagWord::number
  kTaken = 2,   // by the message of TagWord::worker
  kLost = 3,    // its completion is lost (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), and it is the owner's again
};

// SharedTag::word. The numbers count all tags that were added, so no word of a posted tag comes twice.
struct TagWord {
  TagState state;
  uint64_t number;  // kPosted: 48 bits; kTaken: the low 38 of these
  uint32_t worker;  // kTaken: Worker::pack()
  static constexpr TagWord unpack(uint64_t w) {
    const auto state = static_cast<TagState>(w & 3);
    if (state != TagState::kTaken) return {state, w >> 2, 0};
    return {state, w >> 26, static_cast<uint32_t>(w >> 2) & 0xffffff};
  }
  constexpr uint64_t pack() const {
    const uint64_t rest = state != TagState::kTaken ? number : number << 24 | (worker & 0xffffff);
    return rest << 2 | static_cast<uint64_t>(state);
  }
};

inline constexpr uint32_t kTagHeaderSize = 64;  // the longest request for a rendezvous, as mlx5

// A tagged buffer. The owner writes the first line while the tag is free; the taker writes the headers of the
// message (ibv_tmh, ibv_rvh) into the second one.
struct SharedTag {
  alignas(kCacheLine) std::atomic<uint64_t> word;  // TagWord
  uint64_t tag;
  uint64_t mask;
  WqeSge sge;  // length 0: none
  alignas(kCacheLine) std::byte header[kTagHeaderSize];
};
static_assert(sizeof(SharedTag) == 2 * kCacheLine);

inline constexpr uint32_t kMostTags = 0xffff;
// In place of a slot: kTagSlot + index of a tag.
inline constexpr uint32_t kTagSlot = 1u << 30;

// What becomes of a tag when the completion that names it is polled.
enum class TagEnd : uint32_t {
  kFree = 0,        // it is free
  kMore = 1,        // there will be another completion
  kRendezvous = 2,  // the owner fetches the message
};

// The first bytes of Cqe::payload of a completion of tag matching: an operation on the list, or a message to
// an SRQ with tags. `opcode` of the entry is IBV_WC_TM_ADD to IBV_WC_TM_NO_TAG.
struct TagCompletion {
  uint64_t tag = 0;       // of a message that was matched
  uint64_t wr_id = 0;     // of an operation on the list
  uint32_t app_ctx = 0;   // likewise of the message, host byte order
  uint32_t wc_flags = 0;  // IBV_WC_TM_*
  TagEnd end = TagEnd::kFree;
  uint32_t send_number = 0;  // end of a rendezvous: 1 + that of its last send request, low 32 bits; or 0
};
static_assert(sizeof(TagCompletion) == kCqeFirstLine);

// One doubling of a shared receive queue (ibv_modify_srq(3)). Growth i, from 0, has an order ring of its own,
// with 2 << (SharedSrq::order + i + 1) entries, and as many slots as the queue had before. Slots never move,
// so what names one stays valid: completions, current WQEs, bounce buffers. Positions from `start` on are in
// the new order ring; the WQEs that the older rings still have are taken first.
struct SrqGrowth {
  uint64_t start;
  uint64_t order_offset;   // OrderEntry
  uint64_t wqe_offset;     // ReceiveWqe; the first one is that of slot 1 << (SharedSrq::order + i)
  uint64_t bounce_offset;  // kBounceSize bytes each, likewise
};
inline constexpr uint32_t kMaxSrqOrder = 24;
inline constexpr uint32_t kMaxSrqGrowths = kMaxSrqOrder;
static_assert(sizeof(SrqGrowth) == 32);

// ---- queue pair ----

// Whether the responder takes requests, as one word that a requester compares with every request: generation
// (56 bits) | state (8 bits, enum ibv_qp_state). The generation is incremented whenever the QP begins to take
// requests (on the way to RTR) and when it ceases (ERR, RESET, destruction). Within a generation nothing in
// line 0 changes but `path`.
struct ResponderState {
  uint64_t generation;
  uint8_t state;
  static constexpr ResponderState unpack(uint64_t w) { return {w >> 8, static_cast<uint8_t>(w)}; }
  constexpr uint64_t pack() const { return generation << 8 | state; }
};

// Where a queue pair is connected: SharedQp::path. The P_Key and the port of its path and, once the program
// has given one, of its alternate path.
struct QpPath {
  uint16_t pkey;        // full, as in the port's table; 0: none yet
  uint16_t other_pkey;  // of the alternate path
  uint8_t port;         // 0: none yet
  uint8_t other_port;   // of the alternate path; 0: there is none
  uint8_t migration;    // enum ibv_mig_state
  static constexpr QpPath unpack(uint64_t w) {
    return {static_cast<uint16_t>(w), static_cast<uint16_t>(w >> 16), static_cast<uint8_t>(w >> 32),
            static_cast<uint8_t>(w >> 40), static_cast<uint8_t>(w >> 48)};
  }
  constexpr uint64_t pack() const {
    return uint64_t{pkey} | uint64_t{other_pkey} << 16 | uint64_t{port} << 32 | uint64_t{other_port} << 40 |
           uint64_t{migration} << 48;
  }
};

// Are two P_Keys of one partition, and is one of them a full member (vol. 1, 10.9.1, 10.9.3)?
constexpr bool pkeys_match(uint16_t a, uint16_t b) {
  return (a & 0x7fff) != 0 && ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000) != 0;
}

// Conditions that a requester sets in SharedQp::pending_flags. The owner's service thread acts on them.
enum PendingFlag : uint32_t {
  kPendingCommEst = 1u << 0,         // first message arrived in RTR
  kPendingAccessError = 1u << 1,     // responder: IBV_EVENT_QP_ACCESS_ERR
  kPendingRequestError = 1u << 2,    // responder: IBV_EVENT_QP_REQ_ERR
  kPendingFatal = 1u << 3,           // responder: local error, reported by a completion; the QP goes to ERR
  kPendingScatter = 1u << 4,         // eager messages must be scattered: a request waits for that
  kPendingOverrun = 1u << 5,         // XRC_RECV: an SRQ's CQ had no room for its message: IBV_EVENT_QP_FATAL
  kPendingMigrated = 1u << 6,        // the peer has taken the alternate path, and this queue pair with it
  kPendingMigrationError = 1u << 7,  // the peer has, and leads elsewhere: IBV_EVENT_PATH_MIG_ERR
  kPendingBounceRing = 1u << 8,      // the requester would use a bounce ring
};

inline constexpr uint32_t kFlushing = 1u << 31;

// SharedQp::dest_index of a queue pair whose peer is reached by frames: the peer is in no table here.
inline constexpr uint32_t kRemoteIndex = UINT32_MAX;

// What a queue pair has sent or received beside the words `requests_` and `bytes_` below (traffic.h). They
// only rise, and are added, never subtracted: a reader that comes between two of them sees no fall.
struct PacketCounts {
  std::atomic<uint64_t> more_packets;     // SENDs and WRITEs: packets, without the first of each
  std::atomic<uint64_t> response_bytes;   // READs and atomics: the bytes that the responses bring
  std::atomic<uint64_t> more_responses;   // READs: packets of the responses, without the first of each
  std::atomic<uint64_t> group_datagrams;  // UD: messages to a multicast group
};

struct SharedQp {
  // Line 0, written by the owner, read by the requester with every request.
  alignas(kCacheLine) std::atomic<uint64_t> responder_state;
  uint32_t qpn;
  uint32_t dest_qpn;
  uint32_t dest_slot;
  uint32_t dest_slot_generation;
  uint32_t dest_index;
  uint32_t dest_incarnation;
  uint32_t incarnation;  // counts the QPs that had this table entry; 0: never used
  uint32_t access;       // qp_access_flags
  uint32_t pd;
  uint8_t type;  // enum ibv_qp_type
  uint8_t min_rnr_timer;
  uint8_t path_mtu;
  uint8_t max_dest_rd_atomic;
  uint32_t rq_psn;  // the first PSN expected in this generation
  // XRC_RECV, no longer in use: 1 + the state in which its owner left it to the other holders
  uint32_t left_in;
  // QpPath. Also written by the peer, by compare-and-swap, when the connection is armed or migrates
  // (engine/qp_state/migration.h).
  std::atomic<uint64_t> path;
  // Line 1, written by the owner at creation.
  alignas(kCacheLine) uint64_t rq_ready_offset;  // uint64_t[1 << rq_order], ReadyWord
  uint64_t rq_wqe_offset;                        // ReceiveWqe, rq_stride bytes each
  uint64_t rq_bounce_offset;                     // kBounceSize bytes each
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
  std::atomic<uint64_t> rq_taken;              // receive WQEs consumed
  std::atomic<uint64_t> requests_in;           // without group_datagrams
  std::atomic<uint64_t> bytes_in;              // without response_bytes; UD: without the GRH
  std::atomic<uint64_t> requester_generation;  // the generation the values above belong to
  // With `srq`: slot + 1 of the WQE that an unfinished message has taken; or 0. When the owner aborts the
  // message, the owner takes the slot out. While it completes the slot, the word has kFlushing set.
  std::atomic<uint32_t> srq_slot;
  std::atomic<uint64_t>
      bounce_ring_written;  // bytes used, a running number; kept from generation to generation
  // Line 3, written by the requester when a condition is pending; read by the owner all the time.
  alignas(kCacheLine) std::atomic<uint32_t> pending_flags;
  // a request found no receive WQE: posting one wakes the requester
  std::atomic<uint32_t> requester_waits;
  std::atomic<uint32_t> dropped;          // UC and UD: messages that the QP has dropped
  std::atomic<uint32_t> qkey_violations;  // UD
  // XRC_RECV, written by the owner: the attributes that queries from other processes read
  // (engine/xrc/shared_path.h).
  std::atomic<uint32_t> path_version;  // odd: the words are being written
  std::atomic<uint32_t> path_words[10];
  // Line 4, written by the owner's requester; for `verbena status`.
  alignas(kCacheLine) std::atomic<uint64_t> requests_out;  // as requests_in
  std::atomic<uint64_t> bytes_out;
  std::atomic<uint64_t> rq_posted;
  std::atomic<uint64_t> sq_posted;
  std::atomic<uint64_t> sq_completed;
  std::atomic<uint32_t> send_psn;
  std::atomic<uint32_t> rnr_naks;
  std::atomic<uint32_t> retries;
  std::atomic<uint32_t> lost;         // UC and UD: messages to another node that could not be sent in time
  std::atomic<uint64_t> events_told;  // XRC_RECV: for handles in other processes (engine/xrc/xrc_shared_qp.h)
  // Line 5, for `verbena status`, written off the data path. By the owner:
  alignas(kCacheLine) std::atomic<uint64_t> state_since;  // ns, CLOCK_REALTIME
  // The last completion with an error other than IBV_WC_WR_FLUSH_ERR: of the send queue, or polled.
  std::atomic<uint64_t> error_time;  // ns, CLOCK_REALTIME; 0: none
  std::atomic<uint64_t> error_wr_id;
  std::atomic<uint32_t> error;  // ErrorWord
  // The last request that found no receive request at its peer. It waits as long as requests_out has not
  // changed and the queue pair sends.
  std::atomic<uint32_t> rnr_is_endless;  // rnr_retry 7
  std::atomic<uint64_t> rnr_requests_out;
  std::atomic<uint64_t> rnr_since;  // ns, CLOCK_REALTIME; 0: never
  // By the requester: the last receive completion with an error. Its wr_id is known when it is polled.
  std::atomic<uint64_t> receive_error_time;
  std::atomic<uint32_t> receive_error;  // ErrorWord
  // Line 6, written by the owner: adapter/bounce_ring.h.
  alignas(kCacheLine) std::atomic<uint64_t> bounce_ring_offset;  // 0: none
  std::atomic<uint64_t> bounce_ring_freed;                       // bytes polled, a running number
  // Lines 7 and 8, for the counters of the port. SENDs and WRITEs of one packet do not touch them.
  alignas(kCacheLine) PacketCounts packets_out;  // written by the owner's requester
  alignas(kCacheLine) PacketCounts packets_in;   // written by the requester
};
static_assert(sizeof(SharedQp) == 9 * kCacheLine);

// SharedQp::error: status, vendor_err and queue of a completion.
struct ErrorWord {
  uint8_t status;      // enum ibv_wc_status
  uint8_t vendor_err;  // enum class VendorError
  bool receive;
  static constexpr ErrorWord unpack(uint32_t w) {
    return {static_cast<uint8_t>(w), static_cast<uint8_t>(w >> 8), (w >> 16 & 1) != 0};
  }
  constexpr uint32_t pack() const {
    return uint32_t{status} | uint32_t{vendor_err} << 8 | uint32_t{receive} << 16;
  }
};

// ---- memory regions ----

// lkey = index << 9 | tag, rkey = lkey | 0x100. The two are never equal, and the low 8 bits are the tag, as
// the interface for memory windows requires (ibv_inc_rkey(3)). Index 0 is never used, so neither key is ever
// 0.
struct MemoryKey {
  uint32_t index;
  bool remote;
  uint8_t tag;
  static constexpr MemoryKey unpack(uint32_t key) {
    return {key >> 9, (key & 0x100) != 0, static_cast<uint8_t>(key)};
  }
  constexpr uint32_t pack() const { return index << 9 | (remote ? 0x100u : 0u) | tag; }
};

// The kind of object that a key names. A window has an rkey only, the null region an lkey only.
enum class KeyKind : uint32_t {
  kRegion = 0,
  kNullRegion = 1,  // takes every address: writes to it vanish at `address`, zeros are read from `iova`
  kWindow1 = 2,     // memory window of type 1: for every QP of the PD
  kWindow2 = 3,     // type 2B: for the QP `qpn` of the PD
};

// Written by the owner while `valid` is 0. A bound window is unbound by its owner or, if it is of type 2, by
// the peer of its QP. Either does so by setting `valid` to 0 with compare-and-swap.
struct alignas(kCacheLine) SharedMr {
  std::atomic<uint32_t> valid;  // 0, or kKeyValid | tag; of a window: while it is bound
  uint32_t pd;
  uint32_t access;    // IBV_ACCESS_*
  uint32_t last_tag;  // of the last use
  uint64_t iova;      // the address of the first byte as initiators give it
  uint64_t length;    // bytes
  uint64_t address;   // the address in the owner's address space
  KeyKind kind;
  uint32_t qpn;    // kWindow2: the QP that it was bound on
  uint64_t check;  // check_of() of the entry: a peer that finds another value takes the key for unknown
  // Not 0: the region's memory may be of a file that a peer can map too (fabric/region_passing.h). The number
  // is of this registration alone: a mapping that was made for another one is not used. 0: it is not.
  std::atomic<uint32_t> mappable;
  // Index of the region that the number is of: the entry's own, or of a window that of the region that it is
  // bound to.
  uint32_t region;
};
static_assert(sizeof(SharedMr) == kCacheLine);

// SharedMr::valid
inline constexpr uint32_t kKeyValid = 0x100;
// In the owner's private copy alone: no request may use the key, but eager data that came before are still
// to be copied to the region.
inline constexpr uint32_t kKeyEnding = 0x200;

// Differs after any change of a single word.
inline uint64_t check_of(const SharedMr& mr) {
  return mr.pd * 0x9e3779b97f4a7c15u + mr.access * 0xc2b2ae3d27d4eb4fu + mr.iova * 0x165667b19e3779f9u +
         mr.length * 0xd6e8feb86659fd93u + mr.address * 0xff51afd7ed558ccdu +
         static_cast<uint64_t>(mr.kind) * 0xc4ceb9fe1a85ec53u + mr.qpn * 0x94d049bb133111ebu;
}

// ---- the segment ----

// Serialises atomics on those words of an adapter's memory whose addresses map to this lock. The word is 0,
// or slot + 1 of the holder in the high half and its slot generation in the low half.
// - A dead holder's lock may be taken over.
// - A stopped holder's lock may not. There are many locks, so that a stopped holder blocks the users of the
//   same word and few others.
// A requester that has mapped the word changes it without the lock, by one instruction, if nobody holds the
// lock. Its hazard guard says so (HazardWord::of()): a requester that has taken the lock to read and write
// waits until the guards of that kind have ended that are older.
struct alignas(kCacheLine) AtomicsLock {
  std::atomic<uint64_t> holder;
};
inline constexpr uint32_t kAtomicsLocks = 16;
constexpr uint32_t atomics_lock_of(uint64_t address) {
  return static_cast<uint32_t>((address >> 3) * 0x9e3779b97f4a7c15u >> 60);
}

// Contexts and protection domains, which no peer needs: for observers only. Written by the owner. What does
// not find an entry is not listed.
enum class ListedKind : uint32_t { kNone = 0, kTaken = 1, kContext = 2, kDomain = 3 };

struct ListedObject {
  std::atomic<ListedKind> kind;
  uint32_t number;   // of the context; of the domain: its handle
  uint32_t context;  // of a domain: number of its context
  uint32_t device;
};
inline constexpr uint32_t kMaxListed = 1024;
static_assert(sizeof(ListedObject) == 16);

struct SegmentHeader {
  // Line 0, written by the owner before any other process sees the segment.
  alignas(kCacheLine) uint32_t magic;
  uint32_t layout_version;
  uint64_t size;  // of the mapping
  uint64_t node_id;
  uint32_t slot;
  uint32_t slot_generation;
  int32_t pid;         // for process_vm_writev(2); valid only while the slot's holder is alive
  uint32_t explained;  // enum LogLevel: up to which peers explain what they refuse (refusals.h)
  // Line 1, written by the owner when keys become invalid: prevalidated receive WQEs of older epochs are
  // checked again.
  alignas(kCacheLine) std::atomic<uint32_t> mr_epoch;
  std::atomic<uint32_t> qp_high_water;  // number of table entries ever used, for `verbena status`
  std::atomic<uint32_t> cq_high_water;
  std::atomic<uint32_t> mr_high_water;
  std::atomic<uint32_t> srq_high_water;
  std::atomic<uint32_t> lost_events;  // some SharedCq::lost is not 0; set by producers
  // some object has been reported in Changes; set by PeerAdapter::report()
  std::atomic<uint32_t> doorbell;
  // A peer may have mapped memory of this adapter (fabric/region_passing.h). Never cleared. Written by the
  // owner before the peer can map it.
  std::atomic<uint32_t> may_be_mapped;
  // A region of this adapter is, or was, such memory (SharedMr::mappable). Never cleared. Written by the
  // owner before its key is valid.
  std::atomic<uint32_t> has_mappable;
  // Lines 2 to 17, written by initiators: they serialise atomics on one word of this adapter's memory.
  AtomicsLock atomics_locks[kAtomicsLocks];
};

inline constexpr uint64_t kChangesOffset = 4096;                        // Changes (changes.h)
inline constexpr uint64_t kRefusalsOffset = kChangesOffset + 8 * 4096;  // Refusals (refusals.h)
inline constexpr uint64_t kListedOffset = kRefusalsOffset + 4096;       // ListedObject[kMaxListed]
inline constexpr uint64_t kQpTableOffset = kListedOffset + sizeof(ListedObject) * kMaxListed;
inline constexpr uint64_t kCqTableOffset = kQpTableOffset + sizeof(SharedQp) * kMaxQpsPerProcess;
inline constexpr uint64_t kSrqTableOffset = kCqTableOffset + sizeof(SharedCq) * kMaxCqsPerProcess;
inline constexpr uint64_t kMrTableOffset = kSrqTableOffset + sizeof(SharedSrq) * kMaxSrqsPerProcess;
inline constexpr uint64_t kHeapOffset = kMrTableOffset + sizeof(SharedMr) * uint64_t{kMaxMrsPerProcess};
static_assert(kHeapOffset % 4096 == 0);
static_assert(sizeof(SegmentHeader) <= kChangesOffset);

}  // namespace verbena
