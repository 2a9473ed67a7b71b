// SPDX-License-Identifier: BSD-2-Clause
//
// The process that frames are sent to: a queue pair of each kind, each connected to a number of the stranger's, with
// receive requests, with requests of its own that wait for his answers, and with memory of which he may reach a part.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator.h"
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

// What the other end's number of a queue pair is.
constexpr uint32_t theirs(uint32_t queue) { return 0x123 + queue; }

struct Queue {
  Qp* qp = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  unsigned access = 0;
  uint8_t peer = kStrangers;  // last byte of the address it is connected to; 0: none
  uint32_t number() const { return qp_number(qp); }
};

// Bytes of the arena that lie together; between two of them, and at the ends, is a guard.
struct Part {
  uint8_t* bytes = nullptr;
  size_t size = 0;
  Mr* mr = nullptr;
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes); }
};

class Victim {
 public:
  Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // All queue pairs that are the stranger's to RTS, with what they had forgotten, and a few receive requests. What he
  // has sent before may be read only now, and end in ERR before RTS is asked for: then once more, and he has hung up,
  // so that it ends.
  void begin_again();
  // That one alone, once.
  void connect(const Queue& queue);

  // Another queue pair in its place, with another number; false: that one stays.
  bool replace(Queue& queue);

  // More receive requests; a request; another window.
  void post_receives();
  void post_requests(Input& input);
  void bind_window();
  // What may be reached has other keys, whatever is under way.
  void register_anew();
  void poll();
  // What the honest peer's queue pair receives, one message: its bytes are in `honest`, from kReceivesAt on.
  void post_receive_for_honest();
  bool poll_for_honest(ibv_wc* wc) { return poll_cq(for_honest_, 1, wc) == 1; }
  static constexpr uint32_t kReceivesAt = 2048;

  // Whatever may not be reached is as it was.
  void require_untouched() const;
  // 16 bytes that stand, over and over, where nobody may read.
  static const std::array<uint8_t, 16>& secret();

  // Memory, by what a stranger may do with it.
  Part open, readable, windowed, closed, receives;
  Part honest;  // of another protection domain: whom the honest peer alone can reach
  static constexpr uint32_t kBound = 16384, kBoundSize = 8192;  // of `windowed`: where the window is
  uint32_t window_key = 0;                                      // of the last that was bound
  std::array<Queue, kQueues> queues;
  Srq *small_shared = nullptr, *large_shared = nullptr;  // XRC's
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
