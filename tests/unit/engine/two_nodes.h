// SPDX-License-Identifier: BSD-2-Clause
//
// Two nodes with a process each, this one and a forked one, and a stream between the two: to the engine, a
// pair of machines. There is no connection listener: a connect request is only counted, and the test makes
// the streams.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <vector>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/remote.h"
#include "engine/service/engine_service.h"
#include "unit/common/child.h"
#include "unit/engine/scene.h"

namespace verbena {

// What each end tells the other before they are connected.
struct Introduction {
  wire::ProcessId process;
  uint32_t qpn;
  uint64_t address;
  uint32_t rkey;
};

// One of the two: a node, a device, memory, an RC queue pair.
class End {
 public:
  End(bool left, int control, const std::vector<int>& streams, const QpSetup& setup)
      : left_(left), control_(control), streams_(streams), setup_(setup) {
    context->process->service().begin_remote({&End::nobody_is_called, this});
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    close(control_);
    for (size_t i = next_stream_; i < streams_.size(); ++i) close(streams_[i]);
    close(handle_);
  }

  TemporaryNode node;
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get());
  Region memory{pd.get(), 4 * 1024 * 1024};
  Owned<Cq> send_cq = make_cq(context.get(), 512), recv_cq = make_cq(context.get(), 512);
  Owned<Qp> qp = make_qp(pd.get(), send_cq.get(), recv_cq.get());
  Introduction peer{};
  std::atomic<uint32_t> calls{0};  // connect requests to the connection listener

  Remote& remote() const { return *static_cast<Remote*>(context->process->network()); }
  static GidEntry address_of(bool left) {
    GidEntry gid{};
    gid.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, static_cast<uint8_t>(left ? 1 : 2)};
    return gid;
  }

  // Exchanges the introductions.
  void introduce() {
    const Process& process = *context->process;
    const Introduction own{{process.directory().header().node_id, context->process->membership().slot(),
                            context->process->membership().generation()},
                           qp_number(qp.get()),
                           memory.address(),
                           memory.rkey()};
    ASSERT_EQ(write(control_, &own, sizeof own), static_cast<ssize_t>(sizeof own));
    ASSERT_EQ(read(control_, &peer, sizeof peer), static_cast<ssize_t>(sizeof peer));
  }
  // Connects the two over the next of the streams that the test has made, or over `stream`.
  void meet() { meet(streams_.at(next_stream_++)); }
  void meet(int stream) {
    wire::EstablishedConnection arrived;
    arrived.fd = stream;
    close(handle_);
    handle_ = dup(arrived.fd);
    arrived.peer = peer.process;
    arrived.peer_address.bytes = address_of(!left_).raw;
    arrived.own_address.bytes = address_of(left_).raw;
    arrived.target = wire::Target::queue_pair(peer.qpn);
    arrived.begun_here = left_;
    arrived.request_id = 0;
    remote().arrived(arrived);
  }
  // Breaks the connection, whatever is being sent.
  void break_off() { shutdown(handle_, SHUT_RDWR); }
  // Only the process keeps the descriptor.
  void give_up_handle() { close(std::exchange(handle_, -1)); }
  bool is_alone() const { return !remote().is_active(); }
  void connect_qp() { verbena::connect(qp.get(), peer.qpn, address_of(!left_), setup_); }
  void start() {
    introduce();
    connect_qp();
    meet();
    together();
  }
  // Returns when the other end has called it, too.
  void together() {
    char word = 1;
    EXPECT_EQ(write(control_, &word, 1), 1);
    EXPECT_EQ(read(control_, &word, 1), 1);
  }
  ibv_wc sent() const { return completion(send_cq.get()); }
  ibv_wc received() const { return completion(recv_cq.get()); }
  int write_there(uint64_t from, uint64_t to, uint32_t size, uint64_t wr_id = 0) {
    return rdma(qp.get(), IBV_WR_RDMA_WRITE, {memory.sge(from, size)}, peer.address + to, peer.rkey, wr_id);
  }
  int read_there(uint64_t to, uint64_t from, uint32_t size, uint64_t wr_id = 0) {
    return rdma(qp.get(), IBV_WR_RDMA_READ, {memory.sge(to, size)}, peer.address + from, peer.rkey, wr_id);
  }

 private:
  static uint64_t nobody_is_called(void* self, const wire::NetAddress&, const wire::NetAddress&,
                                   const wire::Target&, int64_t) {
    static_cast<End*>(self)->calls.fetch_add(1);
    return 1;
  }
  const bool left_;
  int control_;
  const std::vector<int> streams_;
  size_t next_stream_ = 0;
  int handle_ = -1;
  QpSetup setup_;
};

using Part = std::function<void(End&)>;

// Runs `left` in this process and `right` in another one, which share `meetings` streams.
inline void play(const Part& left, const Part& right, const QpSetup& setup = {}, size_t meetings = 1) {
  int control[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
  std::vector<int> streams[2];
  for (size_t i = 0; i < meetings; ++i) {
    int stream[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
    for (size_t side : {0, 1}) streams[side].push_back(stream[side]);
  }
  Child child([&](const Child&) {
    close(control[0]);
    for (int stream : streams[0]) close(stream);
    {
      End end(false, control[1], streams[1], setup);
      right(end);
    }
    return testing::Test::HasFailure() ? 1 : 0;
  });
  close(control[1]);
  for (int stream : streams[1]) close(stream);
  {
    End end(true, control[0], streams[0], setup);
    left(end);
  }
  EXPECT_EQ(child.finish(), 0) << "what the other node's process found";
}

}  // namespace verbena
