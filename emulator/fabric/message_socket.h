// SPDX-License-Identifier: BSD-2-Clause
//
// A unix socket of messages (SOCK_SEQPACKET) between processes of a node. Close-on-exec, and closed in forked
// children (fork_descriptors.h). As in fifo.h, each use first verifies that the descriptor is still this
// socket, and no function is a cancellation point. Only connect_to() and wait() may wait.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fabric/descriptor.h"

struct sockaddr;

namespace verbena {

class MessageSocket {
 public:
  MessageSocket() = default;
  MessageSocket(MessageSocket&& other) noexcept;
  MessageSocket& operator=(MessageSocket&& other) noexcept;
  ~MessageSocket() { close(); }

  // Listens in `folder`, under `name`. The kernel keeps about `backlog` connections waiting. 0 or errno.
  int listen_in(const std::string& folder, const char* name, int backlog);
  // The same under an abstract name (unix(7)), without its null byte; 100 bytes at most.
  int listen_as(const std::string& abstract_name, int backlog);
  // Waits at most `wait_ms` for space in the backlog. 0; EAGAIN: the backlog is full; ENOENT, ECONNREFUSED:
  // the owner is gone; EPERM: the owner is another user; EMFILE; ...
  int connect_to(const std::string& folder, const char* name, int wait_ms = 0);
  int connect_to_abstract(const std::string& abstract_name, int wait_ms = 0);  // ECONNREFUSED: nobody listens
  // 0; EAGAIN: no connection waits; EMFILE, ENFILE. A process of another user is refused.
  int accept_from(const MessageSocket& listener);

  // Sends a message with descriptors (SCM_RIGHTS, unix(7)), kMaxPassed at most, which stay the caller's. 0;
  // EAGAIN: no space; EPIPE and others: the peer is gone.
  static constexpr size_t kMaxPassed = 2;
  int send(std::span<const uint8_t> message, std::span<const int> passed = {}) const;

  // The size. 0: the peer has closed, and everything that it sent has been read. < 0: an errno; -EAGAIN: no
  // message. For a message longer than `room` the result is larger than its size. Descriptors that came with
  // it go to `passed`, kMaxPassed at most; others are closed. *lost: some did not arrive, because this
  // process has no descriptor left, or because there were more than kMaxPassed.
  ssize_t receive(std::span<uint8_t> room, std::span<Descriptor> passed = {}, bool* lost = nullptr) const;
  // The same without descriptors, and the message stays: the next receive() or peek() gets it.
  ssize_t peek(std::span<uint8_t> room) const;

  // Waits until there is a message, for at most `timeout_ms`, or until a signal comes.
  void wait(int timeout_ms) const;

  // Of the process that listens, in this process's pid namespace; 0: unknown. After connect_to().
  int32_t peer_pid() const;

  void close();
  // In a forked child: closes the descriptor, whatever the parent's thread was doing with this object.
  void close_in_child() const;
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

 private:
  int listen_at(const sockaddr* address, unsigned size, int backlog);
  int connect_at(const sockaddr* address, unsigned size, int wait_ms);
  int take(long fd);
  bool verified() const;
  ssize_t receive_with(int flags, std::span<uint8_t> room, std::span<Descriptor> passed, bool* lost) const;

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena
