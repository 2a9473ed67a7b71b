// SPDX-License-Identifier: BSD-2-Clause
//
// The victim's connection manager, of whom anybody with the fabric's key may ask for connections over TCP: a listener,
// and what a stranger says to it. Messages as they should be, in turn, answers to what the victim says; and some of
// them with a field or a byte that is not.
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
  // Ids that have come with requests: accepted, refused, hung up on and destroyed.
  void settle(Input& input);

 private:
  static bool on_event(void* self, const cm::Event& event);
  void listen(cm::PortSpace space, ibv_qp_type type);

  cm::Service* service_ = nullptr;
  std::mutex mutex_;
  std::vector<cm::Id*> newcomers_;
  std::deque<cm::Id*> alive_;  // answered, and not destroyed yet
};

// One connection of a stranger's. What he says has been judged when it returns.
void attack_cm(CmVictim& victim, Input& input);

}  // namespace verbena::fuzz
