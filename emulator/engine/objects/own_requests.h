// SPDX-License-Identifier: BSD-2-Clause
//
// The requests that a queue pair has posted to its send queue by itself (post/rendezvous.h). They have places
// of their own there, besides the max_send_wr that are the program's (ibv_create_qp(3)). Under Qp::send_lock.
#pragma once

#include <array>
#include <cstdint>

namespace verbena {

// Two for each message that is fetched at the same time, one of them with a message of two headers.
inline constexpr uint32_t kRendezvousRequests = 32;

class OwnRequests {
 public:
  // Of the places from `freed` (Qp::sq_freed) on, so many are taken by such requests.
  uint32_t in_use(uint64_t freed) {
    while (first_ != end_ && numbers_[first_ % kRendezvousRequests] < freed) ++first_;
    return end_ - first_;
  }

  // Is there room for `count` more?
  bool has_room(uint64_t freed, uint32_t count) { return in_use(freed) + count <= kRendezvousRequests; }

  // A request with this running number has been posted. The caller has checked has_room().
  void note(uint64_t number) { numbers_[end_++ % kRendezvousRequests] = number; }

 private:
  std::array<uint64_t, kRendezvousRequests> numbers_{};  // ascending, from first_ to end_
  uint32_t first_ = 0, end_ = 0;
};

}  // namespace verbena
