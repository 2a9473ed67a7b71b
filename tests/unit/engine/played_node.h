// SPDX-License-Identifier: BSD-2-Clause
//
// A process of this node (End, two_nodes.h) and a connection to a process of another node that the test plays
// itself: it writes the frames that the other process would send and reads those that come. So the test
// decides what comes when.
#pragma once

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "unit/engine/two_nodes.h"
#include "wire/frame.h"

namespace verbena {

class PlayedNode {
 public:
  static constexpr uint32_t kQpn = 0x123;  // of the queue pair there that is known without a query

  PlayedNode() : end(true, make_control(), {}, {}) {
    end.peer.process = {77, 1, 1};
    end.peer.qpn = kQpn;
  }
  PlayedNode(const PlayedNode&) = delete;
  PlayedNode& operator=(const PlayedNode&) = delete;
  ~PlayedNode() { close(stream_); }

  // Makes the connection.
  void meet() {
    int stream[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
    stream_ = stream[1];
    end.meet(stream[0]);
  }

  // Ends the connection.
  void hang_up() {
    close(stream_);
    stream_ = -1;
    heard_.clear();
  }

  // Sends a frame and fills in its length.
  template <typename Head>
  void say(Head head, const std::vector<std::byte>& bytes = {}) {
    head.length = static_cast<uint32_t>(sizeof head + bytes.size());
    std::vector<std::byte> frame(head.length);
    std::memcpy(frame.data(), &head, sizeof head);
    std::copy(bytes.begin(), bytes.end(), frame.begin() + sizeof head);
    ASSERT_EQ(::send(stream_, frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
  }
  // Has the process closed the connection? All that it sent before has been read then.
  bool has_ended() const {
    char byte;
    return recv(stream_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  // Has the process read all that was sent? unix(7), SIOCOUTQ.
  bool is_all_taken() const {
    int unread = -1;
    return ioctl(stream_, SIOCOUTQ, &unread) == 0 && unread == 0;
  }

  // The next frame that comes within the time; empty: none.
  std::vector<std::byte> hear(int timeout_ms = 20000) {
    for (;;) {
      uint32_t length = sizeof(wire::FrameStart);
      if (heard_.size() >= length) std::memcpy(&length, heard_.data(), sizeof length);
      if (heard_.size() >= length) {
        const std::vector<std::byte> frame(heard_.begin(), heard_.begin() + length);
        heard_.erase(heard_.begin(), heard_.begin() + length);
        return frame;
      }
      pollfd readable{stream_, POLLIN, 0};
      if (poll(&readable, 1, timeout_ms) != 1) return {};
      std::byte bytes[16384];
      const ssize_t got = recv(stream_, bytes, sizeof bytes, 0);
      if (got <= 0) return {};
      heard_.insert(heard_.end(), bytes, bytes + got);
    }
  }
  static wire::FrameKind kind_of(const std::vector<std::byte>& frame) {
    wire::FrameStart start;
    std::memcpy(&start, frame.data(), sizeof start);
    return start.kind;
  }
  template <typename Head>
  static Head head_of(const std::vector<std::byte>& frame) {
    Head head;
    std::memcpy(&head, frame.data(), sizeof head);
    return head;
  }
  // As hear(), but replies to queries.
  std::vector<std::byte> hear_and_tell() {
    for (;;) {
      std::vector<std::byte> frame = hear();
      if (frame.empty() || kind_of(frame) != wire::FrameKind::kQuery) return frame;
      answer(head_of<wire::QueryHead>(frame));
    }
  }
  // The reply to a request; kind 0: none came.
  wire::AnswerHead hear_answer() {
    const std::vector<std::byte> frame = hear_and_tell();
    return frame.empty() ? wire::AnswerHead{} : head_of<wire::AnswerHead>(frame);
  }
  // Replies that this process has the number.
  void answer(const wire::QueryHead& query) {
    const wire::ProcessId& self = end.peer.process;
    say(wire::WhereaboutsHead{
        0, wire::FrameKind::kWhereabouts, {}, query.qpn, self.generation, self.node, self.slot, 0});
  }

 private:
  // End uses it to talk to another End, which does not exist here.
  static int make_control() {
    int control[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
    close(control[1]);
    return control[0];
  }

  int stream_ = -1;
  std::vector<std::byte> heard_;

 public:
  End end;
};

}  // namespace verbena
