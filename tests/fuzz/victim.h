// SPDX-License-Identifier: BSD-2-Clause
//
// The process that frames are sent to. It has a queue pair of each kind, connected to a QP number of the
// stranger's, with receive requests, with requests of its own that wait for the stranger's answers, and with
// memory of which the stranger may access a part.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator.h"
#include "fabric/device_table.h"
#include "input.h"

namespace verbena::fuzz {

inline constexpr uint16_t kPort = 47917;
// last bytes of addresses
inline constexpr uint8_t kVictim = 2, kStrangers = 9, kHonest = 10, kMulticastMember = 11;
inline constexpr uint32_t kQkey = 0x1234;

// Index of Victim::queues.
enum QueueName : uint8_t {
  kOrdinary,
  kWriteOnly,
  kUnreliable,
  kExtended,
  kExtendedSender,
  kDatagrams,
  kForHonest,
  kQueues
};

// The number of the stranger's QP that queue pair `queue` is connected to.
constexpr uint32_t theirs(uint32_t queue) { return 0x123 + queue; }

struct Queue {
  Qp* qp = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  unsigned access = 0;
  uint8_t peer = kStrangers;  // last byte of the address it is connected to; 0: none
  uint32_t number() const { return qp_number(qp); }
};

// A part of the arena; guards lie between the parts and at both ends.
struct Part {
  uint8_t* bytes = nullptr;
  size_t size = 0;
  Mr* mr = nullptr;
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes); }
};

class Victim {
 public:
  explicit Victim(NetworkKind network = NetworkKind::kFrames);
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Takes all queue pairs of the stranger's through RESET to RTS, and posts a few receive requests. A request
  // that the stranger sent before may be carried out only now and take one to ERR before it is in RTS. Then
  // the change is made again; it succeeds at last, since the stranger's connection is closed.
  void begin_again();
  // That queue pair alone, once.
  void connect(const Queue& queue);

  // Replaces the queue pair by a new one with another number; false: that one is never replaced.
  bool replace(Queue& queue);

  // Posts receive requests; posts a send request; binds the window again.
  void post_receives();
  void post_requests(Input& input);
  void bind_window();
  // Registers the accessible memory again, under other keys, whatever is under way.
  void register_again();
  void poll();
  // One receive for the honest peer's message: its bytes are in `honest`, from kReceivesAt on.
  void post_receive_for_honest();
  bool poll_for_honest(ibv_wc* wc) { return poll_cq(for_honest_, 1, wc) == 1; }
  static constexpr uint32_t kReceivesAt = 2048;

  // Memory that the stranger must not change is as it was.
  void require_untouched() const;
  // 16 bytes that fill, over and over, memory that must not be read.
  static const std::array<uint8_t, 16>& secret();

  // Memory, by what the stranger may do with it.
  Part open, readable, windowed, closed, receives;
  Part honest;  // of another protection domain, for the honest peer alone
  static constexpr uint32_t kBound = 16384, kBoundSize = 8192;  // of `windowed`: where the window is
  uint32_t window_key = 0;                                      // of the window bound last
  std::array<Queue, kQueues> queues;
  Srq *small_shared = nullptr, *large_shared = nullptr;  // of the XRC domain
  ibv_gid group{};
  const std::string& folder() const { return folder_; }

 private:
  void lay_out();
  void make_queues();
  void make_queue(Queue& queue);
  void register_part(Pd* pd, Part& part, int access);
  bool connected(const Queue& queue);
  void post_request(const Queue& queue, ibv_send_wr request, Part& part, uint64_t offset, uint32_t size);
  void require_same(const uint8_t* from, const uint8_t* to) const;

  std::string folder_, node_;
  std::vector<uint8_t> arena_, then_;
  Context* context_ = nullptr;
  Pd *pd_ = nullptr, *honest_pd_ = nullptr;
  Cq *sends_ = nullptr, *receives_ = nullptr, *for_honest_ = nullptr;
  Xrcd* domain_ = nullptr;
  Srq* shared_ = nullptr;
  Mw* window_ = nullptr;
  uint32_t next_receive_ = 0;
  AhOfProgram to_stranger_{}, to_group_{};
};

}  // namespace verbena::fuzz
