// SPDX-License-Identifier: BSD-2-Clause
//
// Identifiers of the connection manager for tests: with owners, and with their events in a queue to wait on.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "cm/cm.h"

namespace verbena::cm {

// Where the events of some ids arrive.
class Inbox {
 public:
  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  // Requests that were not taken end here: their handler is this inbox.
  ~Inbox() {
    for (const Event& event : events_)
      if (event.type == EventType::kConnectRequest) destroy_id(event.id);
  }

  // What handlers return for requests from now on.
  void take_requests(bool take) {
    std::lock_guard lock(mutex_);
    take_ = take;
  }

  // The next event; none within 20 seconds: a failure, and an event of no type.
  Event next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return !events_.empty(); })) {
      ADD_FAILURE() << "no event";
      Event none{};
      none.type = static_cast<EventType>(~0u);
      return none;
    }
    const Event event = events_.front();
    events_.pop_front();
    return event;
  }

  bool empty() {
    std::lock_guard lock(mutex_);
    return events_.empty();
  }

  // Drops the events of an id that has been destroyed.
  void forget(const Id* id) {
    std::lock_guard lock(mutex_);
    std::erase_if(events_, [id](const Event& event) { return event.id == id; });
  }

  size_t refused() {
    std::lock_guard lock(mutex_);
    return refused_;
  }

  static bool handle(void* context, const Event& event) {
    auto* inbox = static_cast<Inbox*>(context);
    std::lock_guard lock(inbox->mutex_);
    if (event.type == EventType::kConnectRequest && !inbox->take_) {
      ++inbox->refused_;
      return false;
    }
    inbox->events_.push_back(event);
    inbox->arrived_.notify_all();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
  bool take_ = true;
  size_t refused_ = 0;
};

inline std::string words(EventType type, int status) {
  return std::string(name_of(type)) + " (" + std::to_string(status) + ")";
}

// The next event has this type and status.
inline ::testing::AssertionResult next_is(Inbox& inbox, EventType type, int status = 0,
                                          Event* out = nullptr) {
  const Event event = inbox.next();
  if (out != nullptr) *out = event;
  if (event.type == type && event.status == status) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "is " << words(event.type, event.status) << ", not " << words(type, status);
}

class ServiceHolder {
 public:
  ServiceHolder() { EXPECT_EQ(acquire_service(&service_), 0); }
  ServiceHolder(const ServiceHolder&) = delete;
  ServiceHolder& operator=(const ServiceHolder&) = delete;
  ~ServiceHolder() {
    if (service_ != nullptr) release_service(service_);
  }
  Service* get() const { return service_; }

 private:
  Service* service_ = nullptr;
};

struct IdEnder {
  void operator()(Id* id) const { destroy_id(id); }
};
using OwnedId = std::unique_ptr<Id, IdEnder>;

inline OwnedId make_id(const ServiceHolder& service, Inbox& inbox, PortSpace space = PortSpace::kTcp,
                       ibv_qp_type type = IBV_QPT_RC) {
  Id* id = nullptr;
  EXPECT_EQ(create_id(service.get(), space, type, Inbox::handle, &inbox, &id), 0);
  return OwnedId(id);
}

struct Ip {
  sockaddr_in in{};
  explicit Ip(const char* text, uint16_t port = 0) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    inet_pton(AF_INET, text, &in.sin_addr);
  }
  operator const sockaddr*() const { return reinterpret_cast<const sockaddr*>(&in); }
};

inline uint16_t port_of(Id* id) {
  Route route;
  query(id, &route);
  return ntohs(reinterpret_cast<const sockaddr_in&>(route.source).sin_port);
}

// Listens on a port that it chooses.
inline OwnedId make_listener(const ServiceHolder& service, Inbox& inbox, PortSpace space = PortSpace::kTcp) {
  OwnedId id = make_id(service, inbox, space);
  EXPECT_EQ(bind_address(id.get(), Ip("0.0.0.0")), 0);
  EXPECT_EQ(listen(id.get(), 16), 0);
  return id;
}

inline ConnectionParameters parameters(uint32_t qp_number, const char* data = "") {
  ConnectionParameters p{};
  p.qp_number = qp_number;
  p.responder_resources = 3;
  p.initiator_depth = 2;
  p.retry_count = 7;
  p.rnr_retry_count = 6;
  p.private_data.length = static_cast<uint8_t>(strlen(data));
  memcpy(p.private_data.bytes, data, p.private_data.length);
  return p;
}

// An id whose route to `port` of this machine is resolved; its inbox is empty.
inline OwnedId make_resolved(const ServiceHolder& service, Inbox& inbox, uint16_t port,
                             PortSpace space = PortSpace::kTcp, const char* host = "127.0.0.1") {
  OwnedId id = make_id(service, inbox, space);
  EXPECT_EQ(resolve_address(id.get(), nullptr, Ip(host, port), 2000), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressResolved));
  EXPECT_EQ(resolve_route(id.get(), 2000), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kRouteResolved));
  return id;
}

}  // namespace verbena::cm
