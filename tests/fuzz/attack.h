// SPDX-License-Identifier: BSD-2-Clause
//
// What the stranger sends: valid frames, one after the other, for each of the victim's queue pairs, and
// answers to the victim's requests. Now and then one in which a field or two are wrong, one that was sent
// before, or half of one.
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

  // Sends the next thing that the input chooses; false: the stranger closes the connection now.
  bool step();
  // Waits until all that was sent has been carried out, if it was frames to the end.
  void settle();

  // The last frame, for the check of the decoder by itself.
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
  bool in_step_ = true;  // only whole frames have been sent so far
  std::array<Course, kQueues> courses_{};
  std::vector<wire::RequestHead> asked_;  // requests that came from the victim
  std::vector<wire::QueryHead> queries_;
  std::vector<wire::AnswerHead> answers_;  // that were sent
  bool settled_ = false;
  bool deaf_ = false;  // reads nothing: what the victim has to send stays with it
  FrameBytes last_;
  std::vector<FrameBytes> said_;  // the last requests that were sent
};

}  // namespace verbena::fuzz
