// SPDX-License-Identifier: BSD-2-Clause
//
// Ids with event channels, each side its own, moved on step by step by one thread.
#pragma once

#include "id_test.h"

namespace verbena::pages {

inline rdma_conn_param parameters_with(const void* data = nullptr, size_t length = 0) {
  rdma_conn_param parameters = {};
  parameters.private_data = data;
  parameters.private_data_len = static_cast<uint8_t>(length);
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  return parameters;
}

class AsyncTest : public IdTest {
 protected:
  void SetUp() override {
    IdTest::SetUp();
    if (HasFatalFailure()) return;
    active_channel_ = make_channel();
    passive_channel_ = make_channel();
    listener_ = make_listener(RDMA_PS_TCP, passive_channel_.get());
  }

  // An id with a QP whose route to the listener is resolved.
  void prepare_active() {
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    resolve(active_, listener_, active_channel_.get());
    create_qp(active_);
  }
  // Up to the request, which becomes `passive_`. The event must be gone before `passive_` is.
  Event request(rdma_conn_param parameters = parameters_with()) {
    prepare_active();
    EXPECT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
    return take_request();
  }
  Event take_request() {
    Event event = next_event(passive_channel_.get());
    EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_CONNECT_REQUEST");
    if (event != nullptr && event->event == RDMA_CM_EVENT_CONNECT_REQUEST) passive_.reset(event->id);
    return event;
  }
  void establish(rdma_conn_param parameters = parameters_with()) {
    request(parameters);
    ASSERT_NE(passive_, nullptr);
    create_qp(passive_);
    ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
    ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
    ASSERT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  }
  static bool has_event(const EventChannel& channel) {
    return becomes_readable(channel->fd, std::chrono::milliseconds(0));
  }

  EventChannel active_channel_, passive_channel_;  // outlive the ids
  CmId listener_, passive_, active_;
};

}  // namespace verbena::pages
