// SPDX-License-Identifier: BSD-2-Clause
//
// A connection by a peer that has the fabric's key and sends whatever it likes.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cm/message.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace verbena::fuzz {

struct Heard {
  wire::FrameHead head;
  std::vector<uint8_t> bytes;  // behind it
};

class Stranger {
 public:
  // From loopback(from) to the victim, in the name of process {node, 1, 1}.
  Stranger(uint8_t from, uint64_t node, const wire::Target& target);
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger();

  // Sends all bytes. While the socket takes no more, `meanwhile` is called, to poll for the victim and to
  // read what the victim sends. False: the victim has closed the connection.
  bool say(const void* bytes, size_t size, const std::function<void()>& meanwhile);
  // The whole frames that have come since the last call; does not wait.
  std::vector<Heard> hear();
  // Waits a moment for more.
  void wait() const;
  bool is_over() const { return over_; }
  // The same for a connection to the connection manager.
  std::vector<cm::Frame> hear_messages();

 private:
  void read();

  int fd_;
  bool over_ = false;
  std::vector<uint8_t> unread_;
};

}  // namespace verbena::fuzz
