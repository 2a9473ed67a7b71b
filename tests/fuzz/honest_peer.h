// SPDX-License-Identifier: BSD-2-Clause
//
// A peer that follows the protocol: it is served, whatever others do, over one connection from the first run
// to the last.
#pragma once

#include <memory>

#include "stranger.h"
#include "victim.h"

namespace verbena::fuzz {

class HonestPeer {
 public:
  explicit HonestPeer(Victim& victim);
  // Writes, reads back, adds, sends: every request gets the right answer.
  void require_served();

 private:
  wire::FrameHead ask(wire::RequestHead head, const std::vector<uint8_t>& bytes, wire::FrameKind answer,
                      std::vector<uint8_t>* said);

  Victim& victim_;
  Stranger connection_;
  uint64_t next_ = 0;
  uint8_t rounds_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace verbena::fuzz
