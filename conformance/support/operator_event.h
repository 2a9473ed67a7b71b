// SPDX-License-Identifier: BSD-2-Clause
//
// Events that no program can cause, only the operator of the machine: by the command of --event-command, or
// asked in words.
#pragma once

#include <chrono>

#include "support/device.h"

namespace conformance {

enum class OperatorEvent : unsigned char { link_down, link_up, gid_change, address_change, reset };

// Lets it happen: runs `COMMAND EVENT DEVICE PORT` with the shell and waits until it ends, or, with the command
// "ask", writes on the terminal what to do and returns. Throws NotTested without --event-command, and where the
// command does not end with status 0.
void cause(OperatorEvent event, const Device& device);

// How long what comes of it may take: longer where a human being does it.
std::chrono::milliseconds operator_time();

// Brings the link back at the end of a test.
class LinkDown {
 public:
  explicit LinkDown(const Device& device);
  LinkDown(const LinkDown&) = delete;
  LinkDown& operator=(const LinkDown&) = delete;
  ~LinkDown();
  void bring_back();

 private:
  const Device& device_;
  bool is_down_ = false;
};

}  // namespace conformance
