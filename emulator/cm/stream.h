// SPDX-License-Identifier: BSD-2-Clause
//
// A sequence of frames over a connection to another node (wire/connection_listener.h). Non-blocking. As in
// fabric/message_socket.h, each use first verifies that the descriptor is still this connection, and no
// function is a cancellation point.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cm/message.h"

namespace verbena::cm {

class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { close(); }

  void take(int fd);  // the stream owns the descriptor

  // 0; EAGAIN: no space, nothing of the frame is sent; EPIPE and others: the connection is over, and the frame
  // stays with the caller. If the socket took part of a frame, the rest waits here.
  int send(const Frame& frame);
  bool has_rest() const { return rest_from_ < rest_to_; }
  int send_rest();  // 0: nothing is left
  // The frame whose rest waits, as a whole: for another connection, when this one is over.
  const Frame& begun() const { return rest_; }
  // Closes this direction: the peer receives what was sent, then the end.
  void end_sending();

  // kFrameSize: a complete frame; 0: the peer has closed; < 0: an errno; -EAGAIN: no complete frame.
  ssize_t receive(std::span<uint8_t> room);

  void close();
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

 private:
  bool verified() const;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  Frame rest_{};
  size_t rest_from_ = 0, rest_to_ = 0;
  Frame partial_{};
  size_t filled_ = 0;
};

}  // namespace verbena::cm
