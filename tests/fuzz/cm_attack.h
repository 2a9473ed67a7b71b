// SPDX-License-Identifier: BSD-2-Clause
//
// The victim's connection manager, with listeners, of which any process with the fabric's key may ask for
// connections over TCP, and what a stranger sends to it: valid messages, in sequence, replies to what the
// victim sends, and some of them with a wrong field or byte.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "cm/cm.h"
#include "input.h"

namespace verbena::fuzz {

class CmVictim {
 public:
  CmVictim();  // the device's node is in the environment
  CmVictim(const CmVictim&) = delete;
  CmVictim& operator=(const CmVictim&) = delete;

  static constexpr uint16_t kServicePort = 7471;
  // Accepts, rejects, disconnects and destroys ids that came with requests.
  void settle(Input& input);

 private:
  static bool on_event(void* self, const cm::Event& event);
  void listen(cm::PortSpace space, ibv_qp_type type);

  cm::Service* service_ = nullptr;
  std::mutex mutex_;
  std::vector<cm::Id*> newcomers_;
  std::deque<cm::Id*> alive_;  // answered, and not destroyed yet
};

// One connection of a stranger. When it returns, the victim has judged all that was sent.
void attack_cm(CmVictim& victim, Input& input);

}  // namespace verbena::fuzz
