// SPDX-License-Identifier: BSD-2-Clause
//
// A unix socket of messages (SOCK_SEQPACKET) between processes of a node. Non-blocking, close-on-exec. As in
// fabric/fifo.h, each use first verifies that the descriptor is still this socket, and no function is a
// cancellation point.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace verbena::cm {

class Socket {
 public:
  Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(); }

  // Listens in `folder`, under the name "cm". 0 or errno.
  int listen_in(const std::string& folder);
  // 0; EAGAIN: the backlog is full; ENOENT, ECONNREFUSED: the owner is gone; EMFILE; ...
  int connect_to(const std::string& folder);
  // 0; EAGAIN: no connection waits; EMFILE, ENFILE. A process of another user is refused.
  int accept_from(const Socket& listener);

  // 0; EAGAIN: no space; EPIPE and others: the peer is gone.
  int send(std::span<const uint8_t> message) const;
  // The size. 0: the peer has closed, and everything that it sent has been read. < 0: an errno; -EAGAIN: no
  // message. For a message longer than `room` the result is larger than its size.
  ssize_t receive(std::span<uint8_t> room) const;

  void close();
  // In a forked child: closes the descriptor, whatever the parent's thread was doing with this object.
  void close_in_child() const;
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

 private:
  int take(long fd);
  bool verified() const;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena::cm
