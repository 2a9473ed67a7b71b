// SPDX-License-Identifier: BSD-2-Clause
//
// What the stranger says: frames as they should be, one behind the other, for each of the victim's queue pairs, and
// answers to what the victim asks; and now and then one in which a field or two are not what they should be, one that
// was there before, half of one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "input.h"
#include "stranger.h"
#include "victim.h"
#include "wire/frame.h"

namespace verbena::fuzz {

using FrameBytes = std::vector<uint8_t>;

class Attack {
 public:
  Attack(Victim& victim, Input& input, uint64_t run);

  // The next thing that the input says; false: he hangs up now.
  bool step();
  // All that was said has been carried out, if it was frames to the end.
  void settle();

  // What checks the decoder by itself.
  const FrameBytes& last() const { return last_; }

 private:
  struct Course {  // of a queue pair's requests
    uint64_t path_generation, number;
    uint32_t psn;
  };
  void begin_connection();
  void meanwhile();
  void hear();
  bool say(const FrameBytes& frame);
  bool say_request(uint32_t queue);
  bool say_long_request(uint32_t queue);
  bool say_long_read(uint32_t queue);
  bool say_datagram();
  bool say_answer();
  bool say_read_data(const wire::RequestHead& to);
  bool say_whereabouts();
  bool say_noise();
  wire::RequestHead request_head(uint32_t queue, uint32_t size);
  void aim(wire::RequestHead& head, uint32_t size);
  template <typename Head>
  FrameBytes frame(Head head, uint32_t payload);
  void spoil(FrameBytes& bytes);
  uint64_t odd(uint64_t usual, unsigned size);

  Victim& victim_;
  Input& input_;
  std::unique_ptr<Stranger> stranger_;
  bool in_step_ = true;  // what was said so far are whole frames
  std::array<Course, kQueues> courses_{};
  std::vector<wire::RequestHead> asked_;  // the victim's requests
  std::vector<wire::QueryHead> queries_;
  std::vector<wire::AnswerHead> answers_;  // that were said
  bool settled_ = false;
  bool deaf_ = false;  // he takes nothing: what the victim has to say stays with it
  FrameBytes last_;
  std::vector<FrameBytes> said_;  // the last requests
};

}  // namespace verbena::fuzz
