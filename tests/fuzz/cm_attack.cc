// SPDX-License-Identifier: BSD-2-Clause
#include "cm_attack.h"

#include <netinet/in.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>

#include "cm/message.h"
#include "cm/message_fields.h"
#include "loopback_node.h"
#include "stranger.h"
#include "victim.h"

namespace verbena::fuzz {
namespace {

using namespace cm;

// A new name each time: to a process that it knows the victim replies as it did before.
uint64_t next_node = 0x1000;
constexpr uint64_t kLastTransaction = 0x1a57;  // the transaction of a message that is answered in any case
constexpr size_t kMostIds = 64;
constexpr uint64_t kTcp = 0x0106'0000, kUdp = 0x0111'0000;  // service ids, but for the port

class Talk {
 public:
  Talk(CmVictim& victim, Input& input)
      : victim_(victim),
        input_(input),
        stranger_(kStrangers, next_node++, wire::Target::cm_listener(kTcp + CmVictim::kServicePort)) {}

  void go_on() {
    for (int i = 0; i < 48 && !input_.empty() && !stranger_.is_over(); ++i) {
      hear();
      const bool answers = !heard_.empty() && input_.below(4) != 0;
      if (!say(answers ? answer() : opening())) break;
      if (input_.below(4) == 0) victim_.settle(input_);
    }
    settle();
  }

 private:
  Message begun(MessageKind kind) {
    Message m;
    m.kind = kind;
    for (const FieldPlace& place : layout_of(kind)->fields) m[place.field] = place.min;
    std::copy_n(wire::loopback(kStrangers).bytes.data(), 16, m.source.data());
    std::copy_n(wire::loopback(kVictim).bytes.data(), 16, m.destination.data());
    m[Field::kTransaction] = ++transaction_;
    m[Field::kLocalId] = 1 + input_.below(8);
    return m;
  }

  // A request for a new connection, sometimes with an id that is in use.
  Message opening() {
    static constexpr MessageKind kKinds[] = {MessageKind::kReq, MessageKind::kReq, MessageKind::kReq,
                                             MessageKind::kSidrReq, MessageKind::kSidrReq};
    const uint8_t which = input_.below(8);
    Message m = begun(which < std::size(kKinds) ? kKinds[which] : static_cast<MessageKind>(0x10 + input_.below(9)));
    const bool datagrams = m.kind == MessageKind::kSidrReq;
    m[Field::kServiceId] = (datagrams ? kUdp : kTcp) + CmVictim::kServicePort + (input_.below(8) == 0 ? 1 : 0);
    m[Field::kQpn] = 0x31 + input_.below(4);
    m.primary_local = m.source;
    m.primary_remote = m.destination;
    m.private_data[1] = 0x40;  // the CMA header: IPv4
    std::copy_n(m.source.data() + 12, 4, m.private_data.data() + 16);
    std::copy_n(m.destination.data() + 12, 4, m.private_data.data() + 32);
    return m;
  }

  // The reply to the message received last.
  Message answer() {
    const Message to = heard_.front();
    heard_.pop_front();
    static constexpr struct {
      MessageKind heard, said;
    } kAnswers[] = {{MessageKind::kRep, MessageKind::kRtu},   {MessageKind::kReq, MessageKind::kRep},
                    {MessageKind::kDreq, MessageKind::kDrep}, {MessageKind::kRej, MessageKind::kDreq},
                    {MessageKind::kMra, MessageKind::kRtu},   {MessageKind::kDrep, MessageKind::kReq}};
    MessageKind kind = MessageKind::kDreq;
    for (const auto& row : kAnswers)
      if (row.heard == to.kind) kind = row.said;
    if (input_.below(8) == 0) kind = static_cast<MessageKind>(0x10 + input_.below(9));
    Message m = begun(kind);
    m[Field::kTransaction] = to[Field::kTransaction];
    m[Field::kLocalId] = to[Field::kRemoteId];
    m[Field::kRemoteId] = to[Field::kLocalId];
    m[Field::kRemoteQpn] = to[Field::kQpn];
    m[Field::kQpn] = 0x31;
    return m;
  }

  bool say(Message m) {
    static constexpr uint8_t kOdd[] = {0, 0, 0, 0, 0, 1, 1, 2};
    for (uint8_t odd = kOdd[input_.below(8)]; odd > 0; --odd) {
      const auto fields = layout_of(m.kind)->fields;
      const FieldPlace& place = fields[input_.byte() % fields.size()];
      m[place.field] = input_.below(2) == 0 ? place.max : input_.take<uint64_t>();
    }
    Frame frame;
    encode(m, frame);
    for (uint8_t damage = input_.below(16); damage > 13; --damage)
      frame[input_.take<uint16_t>() % frame.size()] ^= input_.byte();
    const size_t size = input_.below(64) == 1 ? input_.byte() : frame.size();
    is_whole_ &= size == frame.size();
    return stranger_.say(frame.data(), size, [this] { hear(); });
  }

  void hear() {
    for (const Frame& frame : stranger_.hear_messages()) {
      Message m;
      require(decode(frame, &m), "what is said are messages");
      is_answered_ |= m.kind == MessageKind::kDrep && m[Field::kTransaction] == kLastTransaction;
      heard_.push_back(m);
      if (heard_.size() > 64) heard_.pop_front();
    }
  }

  // A DREQ for a connection that does not exist is answered by a DREP.
  void settle() {
    if (!is_whole_) return;
    Message m = begun(MessageKind::kDreq);
    m[Field::kTransaction] = kLastTransaction;
    m[Field::kRemoteId] = 0xffffffff;
    Frame frame;
    encode(m, frame);
    stranger_.say(frame.data(), frame.size(), [this] { hear(); });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is_answered_) {
      require(!stranger_.is_over(), "a peer that sends messages stays connected");
      require(std::chrono::steady_clock::now() < deadline, "what was said is judged");
      stranger_.wait();
      hear();
    }
  }

  CmVictim& victim_;
  Input& input_;
  Stranger stranger_;
  uint64_t transaction_ = 0x100;
  bool is_whole_ = true, is_answered_ = false;
  std::deque<Message> heard_;
};

}  // namespace

CmVictim::CmVictim() {
  require(acquire_service(&service_) == 0, "there is a node");
  listen(PortSpace::kTcp, IBV_QPT_RC);
  listen(PortSpace::kUdp, IBV_QPT_UD);
}

void CmVictim::listen(PortSpace space, ibv_qp_type type) {
  Id* id = nullptr;
  require(create_id(service_, space, type, on_event, this, &id) == 0, "an id can be made");
  sockaddr_storage where;
  wire::loopback(kVictim).to_socket_address(kServicePort, &where);
  require(bind_address(id, reinterpret_cast<const sockaddr*>(&where)) == 0, "the port is free");
  require(cm::listen(id, 16) == 0, "a bound id listens");
}

bool CmVictim::on_event(void* self, const Event& event) {
  auto* const victim = static_cast<CmVictim*>(self);
  if (event.type != EventType::kConnectRequest) return true;
  const std::lock_guard lock(victim->mutex_);
  if (victim->newcomers_.size() >= kMostIds) return false;
  victim->newcomers_.push_back(event.id);
  return true;
}

void CmVictim::settle(Input& input) {
  std::vector<Id*> mine;
  {
    const std::lock_guard lock(mutex_);
    mine.swap(newcomers_);
  }
  for (Id* id : mine) {
    ConnectionParameters parameters{};
    parameters.qp_number = 5;
    switch (input.below(4)) {
      case 0:
        cm::reject(id, {}, 0);
        break;
      case 1:
        break;
      default:
        cm::accept(id, &parameters, {});
    }
    if (input.below(4) == 0) cm::disconnect(id);
    alive_.push_back(id);
    while (alive_.size() > input.below(8)) {
      destroy_id(alive_.front());
      alive_.pop_front();
    }
  }
}

void attack_cm(CmVictim& victim, Input& input) {
  Talk(victim, input).go_on();
  victim.settle(input);
}

}  // namespace verbena::fuzz
