// SPDX-License-Identifier: BSD-2-Clause
//
// A peer that sends anything: damaged frames, messages in a wrong state, replies to requests that were never
// sent, while ids of this process are in all states. Afterwards the connection manager still works.
// VERBENA_FUZZ_SECONDS: how long.
#include <errno.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "adapter/clock.h"
#include "unit/cm/impostor.h"
#include "unit/cm/scene.h"
#include "unit/common/child.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

constexpr uint16_t kOwnPort = 7471, kPortOfPeer = 7472;

// Sends in the name of another process of the node.
class HostilePeer {
 public:
  HostilePeer(const TemporaryNode& node, int32_t pid, uint64_t seed) : random_(seed) {
    introduce(socket_, node, pid);
  }

  void speak() {
    hear();
    Frame frame;
    switch (below(6)) {
      case 0:
        return noise();
      case 1:
        encode(invention(), frame);
        frame[below(kFrameSize)] ^= static_cast<uint8_t>(1 << below(8));
        break;
      case 2:
        encode(invention(), frame);
        break;
      default:
        encode(answer(), frame);
        break;
    }
    send(frame);
  }

 private:
  uint64_t below(uint64_t limit) { return random_() % limit; }

  void send(std::span<const uint8_t> bytes) {
    while (socket_.send(bytes) == EAGAIN) {
      hear();
      usleep(100);
    }
  }

  void hear() {
    Frame frame;
    Message m;
    while (socket_.receive(frame) == kFrameSize)
      if (decode(frame, &m)) {
        if (heard_.size() < 64)
          heard_.push_back(m);
        else
          heard_[below(64)] = m;
      }
  }

  void noise() {
    std::vector<uint8_t> bytes(below(2 * kFrameSize));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    send(bytes);
  }

  MessageKind any_kind() { return static_cast<MessageKind>(0x10 + below(9)); }

  // A well-formed message with random fields.
  Message invention() {
    Message m;
    m.kind = any_kind();
    for (const FieldPlace& place : layout_of(m.kind)->fields)
      m[place.field] =
          place.min + below(place.max - place.min == ~uint64_t{0} ? 1000 : place.max - place.min + 1);
    m[Field::kTransportType] = below(2);
    m[Field::kExtendedTransportType] = 0;
    if (below(4) != 0) m[Field::kServiceId] = 0x01060000 + kOwnPort + below(2) * 0xb0000;  // TCP, UDP
    m[Field::kLocalId] = 1 + below(8);
    m.source[10] = m.source[11] = m.destination[10] = m.destination[11] = 0xff;
    m.source[12] = m.destination[12] = 127;
    m.source[15] = m.destination[15] = 1;
    m.private_data[1] = 0x40;
    m.private_data[16] = m.private_data[32] = 127;
    m.private_data[19] = m.private_data[35] = 1;
    return m;
  }

  // A reply to a message that was heard.
  Message answer() {
    Message m = invention();
    if (heard_.empty()) return m;
    const Message& to = heard_[below(heard_.size())];
    m.source = to.destination;
    m.destination = to.source;
    m[Field::kTransaction] = to[Field::kTransaction];
    m[Field::kRemoteId] = to[Field::kLocalId];
    if (below(4) != 0) m[Field::kLocalId] = to[Field::kRemoteId] != 0 ? to[Field::kRemoteId] : 1 + below(8);
    if (to.kind == MessageKind::kSidrReq) m[Field::kLocalId] = to[Field::kLocalId];
    if (below(2) != 0) m[Field::kRemoteQpn] = to[Field::kQpn];
    if (below(2) != 0) m[Field::kWhichMessage] = below(2);
    return m;
  }

  MessageSocket socket_;
  std::mt19937_64 random_;
  std::vector<Message> heard_;
};

int listen_for_show(const Child& child) {
  ServiceHolder service;
  Inbox inbox;
  std::vector<OwnedId> listeners;
  for (const PortSpace space : {PortSpace::kTcp, PortSpace::kUdp}) {
    listeners.push_back(make_id(service, inbox, space));
    if (bind_address(listeners.back().get(), Ip("127.0.0.1", kPortOfPeer)) != 0) return 1;
    if (listen(listeners.back().get(), 1) != 0) return 1;
  }
  child.tell('L');
  return child.hear();
}

// A program that accepts, rejects, connects and gives up at random.
class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed) {
    for (const PortSpace space : {PortSpace::kTcp, PortSpace::kUdp}) {
      listeners_.push_back(make_id(service_, inbox_, space));
      EXPECT_EQ(bind_address(listeners_.back().get(), Ip("0.0.0.0", kOwnPort)), 0);
      EXPECT_EQ(listen(listeners_.back().get(), 100), 0);
    }
  }

  void act() {
    const ConnectionParameters p = parameters(static_cast<uint32_t>(random_() % 64));
    while (!inbox_.empty()) {
      const Event event = inbox_.next();
      if (event.type == EventType::kConnectRequest) {
        ids_.emplace_back(event.id);
        if (random_() % 2) accept(event.id, &p, {});
      }
      if (event.type == EventType::kAddressResolved) resolve_route(event.id, 1000);
      if (event.type == EventType::kRouteResolved) connect(event.id, p, {});
      if (event.type == EventType::kConnectResponse && random_() % 2) accept(event.id, nullptr, {});
    }
    if (random_() % 4 == 0) {
      ids_.push_back(make_id(service_, inbox_, random_() % 2 ? PortSpace::kTcp : PortSpace::kUdp));
      resolve_address(ids_.back().get(), nullptr, Ip("127.0.0.1", kPortOfPeer), 1000);
    }
    if (ids_.empty()) return;
    const size_t chosen = random_() % ids_.size();
    if (random_() % 4 == 0) disconnect(ids_[chosen].get());
    if (random_() % 8 == 0) notify(ids_[chosen].get(), IBV_EVENT_COMM_EST);
    if (random_() % 8 == 0) reject(ids_[chosen].get(), {}, 0);
    // Events in the inbox name ids: those are destroyed when it is empty.
    if (ids_.size() > 200 && inbox_.empty()) drop(chosen);
  }

  const ServiceHolder& service() const { return service_; }
  void end() {
    listeners_.clear();
    ids_.clear();
  }

 private:
  void drop(size_t chosen) {
    const Id* gone = ids_[chosen].get();
    ids_[chosen] = std::move(ids_.back());
    ids_.pop_back();
    inbox_.forget(gone);
  }

  ServiceHolder service_;
  Inbox inbox_;
  std::mt19937_64 random_;
  std::vector<OwnedId> listeners_, ids_;
};

TEST(HostilePeer, IsSurvived) {
  TemporaryNode node;
  Child bystander(listen_for_show);
  ASSERT_EQ(bystander.answer(), 'L');
  Program program(1);
  HostilePeer peer(node, bystander.pid(), 2);
  const char* seconds = getenv("VERBENA_FUZZ_SECONDS");
  const int64_t end = now_ns() + (seconds != nullptr ? atoll(seconds) : 2) * 1'000'000'000;
  while (now_ns() < end) {
    for (int i = 0; i < 20; ++i) peer.speak();
    program.act();
  }
  program.end();
  Inbox passive_inbox, active_inbox;
  const OwnedId listener = make_listener(program.service(), passive_inbox);
  const OwnedId active = make_resolved(program.service(), active_inbox, port_of(listener.get()));
  ASSERT_EQ(connect(active.get(), parameters(1), {}), 0);
  Event event;
  ASSERT_TRUE(next_is(passive_inbox, EventType::kConnectRequest, 0, &event));
  const OwnedId passive(event.id);
}

}  // namespace
}  // namespace verbena::cm
