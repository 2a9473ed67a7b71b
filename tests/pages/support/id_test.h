// SPDX-License-Identifier: BSD-2-Clause
//
// Fixtures that grow in steps: an address of the device, ids in synchronous operation, ids with a channel.
#pragma once

#include <poll.h>

#include <chrono>

#include "addresses.h"
#include "owned.h"

namespace verbena::pages {

inline constexpr std::chrono::seconds kPatience{10};
inline constexpr int kResolveMs = 2000;

// What a call that answers 0, or -1 and errno, did: 0 or the errno.
inline int error_of(int answer) { return answer == 0 ? 0 : answer == -1 ? errno : answer; }

inline bool becomes_readable(int fd, std::chrono::milliseconds patience = kPatience) {
  pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(patience.count())) == 1 && (entry.revents & POLLIN) != 0;
}

// The next event; nullptr, and a failure of the test, when none comes.
inline Event next_event(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  if (!becomes_readable(channel->fd))
    ADD_FAILURE() << "no event";
  else if (rdma_get_cm_event(channel, &event) != 0)
    ADD_FAILURE() << "rdma_get_cm_event: " << strerror(errno);
  return Event(event);
}
inline std::string name_of(const Event& event) {
  return event == nullptr ? "no event" : rdma_event_str(event->event);
}
// Takes the next event and answers its name.
inline std::string next_name(rdma_event_channel* channel) { return name_of(next_event(channel)); }

inline ibv_qp_init_attr queue_attributes(ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attributes = {};
  attributes.cap = {
      .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
  attributes.qp_type = type;
  attributes.sq_sig_all = 1;
  return attributes;
}

inline ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

class IdTest : public testing::Test {
 protected:
  void SetUp() override {
    host_ = Address::of_device(AF_INET);
    ASSERT_NE(host_, "") << "no device with an IPv4 address: these tests run under `verbena run`";
    address_ = Address(host_, 0);
  }

  // In synchronous operation unless a channel is given.
  static CmId make_id(rdma_port_space space = RDMA_PS_TCP, rdma_event_channel* channel = nullptr,
                      void* context = nullptr) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel, &id, context, space), 0) << strerror(errno);
    return CmId(id);
  }
  // Bound to the device, on a port of the library's choice.
  CmId make_bound_id(rdma_port_space space = RDMA_PS_TCP, rdma_event_channel* channel = nullptr) {
    CmId id = make_id(space, channel);
    if (id != nullptr) {
      EXPECT_EQ(rdma_bind_addr(id.get(), address_.get()), 0) << strerror(errno);
    }
    return id;
  }
  CmId make_listener(rdma_port_space space = RDMA_PS_TCP, rdma_event_channel* channel = nullptr,
                     int backlog = 8) {
    CmId id = make_bound_id(space, channel);
    if (id != nullptr) {
      EXPECT_EQ(rdma_listen(id.get(), backlog), 0) << strerror(errno);
    }
    return id;
  }
  static EventChannel make_channel() {
    EventChannel channel(rdma_create_event_channel());
    EXPECT_NE(channel, nullptr) << strerror(errno);
    return channel;
  }
  static uint16_t port_of(const CmId& id) { return ntohs(rdma_get_src_port(id.get())); }
  Address address_of(const CmId& listener) const { return address_.with_port(port_of(listener)); }

  // Resolved to `listener`, address and route; a channel's events are taken.
  CmId make_resolved_id(const CmId& listener, rdma_port_space space = RDMA_PS_TCP,
                        rdma_event_channel* channel = nullptr) {
    CmId id = make_id(space, channel);
    if (id != nullptr) resolve(id, listener, channel);
    return id;
  }
  void resolve(const CmId& id, const CmId& listener, rdma_event_channel* channel = nullptr) {
    Address to = address_of(listener);
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, to.get(), kResolveMs), 0) << strerror(errno);
    if (channel != nullptr) {
      ASSERT_EQ(next_name(channel), "RDMA_CM_EVENT_ADDR_RESOLVED");
    }
    ASSERT_EQ(rdma_resolve_route(id.get(), kResolveMs), 0) << strerror(errno);
    if (channel != nullptr) {
      ASSERT_EQ(next_name(channel), "RDMA_CM_EVENT_ROUTE_RESOLVED");
    }
  }
  static void create_qp(const CmId& id, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attributes = queue_attributes(type);
    ASSERT_EQ(rdma_create_qp(id.get(), nullptr, &attributes), 0) << strerror(errno);
  }
  // The next completion of its send queue, or of its receive queue.
  static ibv_wc sent(const CmId& id) {
    ibv_wc wc = {};
    EXPECT_EQ(rdma_get_send_comp(id.get(), &wc), 1) << strerror(errno);
    return wc;
  }
  static ibv_wc received(const CmId& id) {
    ibv_wc wc = {};
    EXPECT_EQ(rdma_get_recv_comp(id.get(), &wc), 1) << strerror(errno);
    return wc;
  }

  std::string host_;
  Address address_;  // of the device, port 0
};

}  // namespace verbena::pages
