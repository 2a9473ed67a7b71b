// SPDX-License-Identifier: BSD-2-Clause
//
// Two connected ids of one process, each side made by a thread of its own as two programs would: `active_`
// asked, `passive_` accepted. Both are in synchronous operation, with a QP that the library made.
#pragma once

#include <functional>
#include <thread>

#include "id_test.h"

namespace verbena::pages {

// What a test wants to be different about its connection. Parameters that are null are the library's.
struct Connection {
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_conn_param* active = nullptr;
  rdma_conn_param* passive = nullptr;
  std::function<void(rdma_cm_id*)> before_accept = {};
};

inline Info address_info(const std::string& host, uint16_t port, int flags, rdma_port_space space) {
  rdma_addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_port_space = space;
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(rdma_getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found), 0);
  return Info(found);
}

class ConnectedTest : public IdTest {
 protected:
  static constexpr size_t kSize = 4096;

  void SetUp() override {
    IdTest::SetUp();
    if (HasFatalFailure()) return;
    connect_pair();
  }
  void TearDown() override { disconnect_pair(); }

  // Gives the pair up, and makes a new one.
  void connect_pair(const Connection& wanted = {}, rdma_port_space space = RDMA_PS_TCP) {
    disconnect_pair();
    Connection connection = wanted;
    const Info here = address_info(host_, 0, RAI_PASSIVE, space);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_ep(&id, here.get(), nullptr, &connection.attributes), 0) << strerror(errno);
    listener_.reset(id);
    ASSERT_EQ(rdma_listen(id, 4), 0) << strerror(errno);
    const Info there = address_info(host_, port_of(listener_), 0, space);
    ibv_qp_init_attr attributes = wanted.attributes;
    ASSERT_EQ(rdma_create_ep(&id, there.get(), nullptr, &attributes), 0) << strerror(errno);
    active_.reset(id);
    std::thread server([this, &connection] { accept_one(connection); });
    EXPECT_EQ(rdma_connect(active_.get(), connection.active), 0) << strerror(errno);
    server.join();
    ASSERT_NE(passive_, nullptr);
    active_memory_ = Memory(active_.get(), kSize);
    passive_memory_ = Memory(passive_.get(), kSize);
  }
  void disconnect_pair() {
    active_memory_ = {};
    passive_memory_ = {};
    active_.reset();
    passive_.reset();
    listener_.reset();
  }

  // As two programs do: who disconnects in synchronous operation waits for the other to do so.
  void disconnect_both() {
    std::thread other([this] { EXPECT_EQ(rdma_disconnect(passive_.get()), 0) << strerror(errno); });
    EXPECT_EQ(rdma_disconnect(active_.get()), 0) << strerror(errno);
    other.join();
  }

  // The common half of many cases.
  void send_from_active(size_t length, int flags = 0) {
    ASSERT_EQ(
        rdma_post_send(active_.get(), nullptr, active_memory_.data(), length, active_memory_.mr(), flags), 0);
  }
  void receive_at_passive(uint64_t id, size_t length, size_t offset = 0) {
    ASSERT_EQ(rdma_post_recv(passive_.get(), context_of(id), passive_memory_.data(offset), length,
                             passive_memory_.mr()),
              0);
  }

  CmId listener_, active_, passive_;
  Memory active_memory_, passive_memory_;

 private:
  void accept_one(const Connection& connection) {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_get_request(listener_.get(), &id), 0) << strerror(errno);
    passive_.reset(id);
    if (connection.before_accept) connection.before_accept(id);
    EXPECT_EQ(rdma_accept(id, connection.passive), 0) << strerror(errno);
  }
};

// A send that finds no receive fails at once, not never.
inline rdma_conn_param impatient() {
  rdma_conn_param parameters = {};
  parameters.responder_resources = RDMA_MAX_RESP_RES;
  parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 0;
  return parameters;
}

}  // namespace verbena::pages
