// SPDX-License-Identifier: BSD-2-Clause
#include "attack.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "engine/datagram/multicast.h"
#include "engine/rules/send_rules.h"
#include "fabric/device_table.h"
#include "loopback_node.h"

namespace verbena::fuzz {
namespace {

using namespace wire;

constexpr uint64_t kNode = 77;           // the stranger's
constexpr uint32_t kNobodys = 0xabcdef;  // a QP that settle() queries

struct Field {
  FrameKind kind;
  uint16_t offset;
  uint8_t size;
};
#define FIELD(kind, head, name) \
  { kind, offsetof(head, name), sizeof(head::name) }
constexpr Field kFields[] = {
    FIELD(FrameKind::kRequest, RequestHead, opcode),
    FIELD(FrameKind::kRequest, RequestHead, flags),
    FIELD(FrameKind::kRequest, RequestHead, connection),
    FIELD(FrameKind::kRequest, RequestHead, target_qpn),
    FIELD(FrameKind::kRequest, RequestHead, source_qpn),
    FIELD(FrameKind::kRequest, RequestHead, path_generation),
    FIELD(FrameKind::kRequest, RequestHead, number),
    FIELD(FrameKind::kRequest, RequestHead, finished_below),
    FIELD(FrameKind::kRequest, RequestHead, psn),
    FIELD(FrameKind::kRequest, RequestHead, size),
    FIELD(FrameKind::kRequest, RequestHead, offset),
    FIELD(FrameKind::kRequest, RequestHead, immediate),
    FIELD(FrameKind::kRequest, RequestHead, remote_address),
    FIELD(FrameKind::kRequest, RequestHead, rkey),
    FIELD(FrameKind::kRequest, RequestHead, srqn),
    FIELD(FrameKind::kRequest, RequestHead, compare_add),
    FIELD(FrameKind::kRequest, RequestHead, swap),
    FIELD(FrameKind::kAck, AnswerHead, kind),
    FIELD(FrameKind::kAck, AnswerHead, rnr_timer),
    FIELD(FrameKind::kAck, AnswerHead, target_qpn),
    FIELD(FrameKind::kAck, AnswerHead, source_qpn),
    FIELD(FrameKind::kAck, AnswerHead, path_generation),
    FIELD(FrameKind::kAck, AnswerHead, number),
    FIELD(FrameKind::kAck, AnswerHead, value),
    FIELD(FrameKind::kDatagram, DatagramHead, flags),
    FIELD(FrameKind::kDatagram, DatagramHead, sl),
    FIELD(FrameKind::kDatagram, DatagramHead, path_bits),
    FIELD(FrameKind::kDatagram, DatagramHead, target_qpn),
    FIELD(FrameKind::kDatagram, DatagramHead, source_qpn),
    FIELD(FrameKind::kDatagram, DatagramHead, qkey),
    FIELD(FrameKind::kDatagram, DatagramHead, immediate),
    {FrameKind::kDatagram, offsetof(DatagramHead, destination), 8},
    FIELD(FrameKind::kQuery, QueryHead, qpn),
    FIELD(FrameKind::kWhereabouts, WhereaboutsHead, qpn),
    FIELD(FrameKind::kWhereabouts, WhereaboutsHead, generation),
    FIELD(FrameKind::kWhereabouts, WhereaboutsHead, node),
    FIELD(FrameKind::kWhereabouts, WhereaboutsHead, slot),
};
#undef FIELD

// All answers have one head.
FrameKind family_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kRequest:
    case FrameKind::kDatagram:
    case FrameKind::kQuery:
    case FrameKind::kWhereabouts:
      return kind;
    default:
      return FrameKind::kAck;
  }
}

uint32_t packets_of(uint32_t size) { return std::max(1u, (size + 1023) / 1024); }

}  // namespace

Attack::Attack(Victim& victim, Input& input, uint64_t run) : victim_(victim), input_(input) {
  for (Course& course : courses_) course = {2 * run, 0, 0};
  begin_connection();
  deaf_ = input_.below(8) == 1;
}

void Attack::begin_connection() {
  stranger_.reset();
  in_step_ = true;
  stranger_ = std::make_unique<Stranger>(kStrangers, kNode, Target::queue_pair(victim_.queues[kOrdinary].number()));
}

void Attack::meanwhile() {
  hear();
  victim_.poll();
}

void Attack::hear() {
  if (deaf_) return;
  for (const Heard& heard : stranger_->hear()) {
    const FrameHead& head = heard.head;
    switch (head.start.kind) {
      case FrameKind::kRequest:
        if (asked_.size() < 64) asked_.push_back(head.request);
        break;
      case FrameKind::kQuery:
        if (queries_.size() < 64) queries_.push_back(head.query);
        break;
      case FrameKind::kWhereabouts:
        settled_ |= head.whereabouts.qpn == kNobodys;
        break;
      case FrameKind::kReadData:
      case FrameKind::kAtomicAnswer: {
        const uint32_t source = head.answer.source_qpn;
        require(source != victim_.queues[kWriteOnly].number() && source != victim_.queues[kUnreliable].number(),
                "a queue pair that may not be read answers no READ");
        break;
      }
      default:
        break;
    }
  }
}

bool Attack::say(const FrameBytes& frame) {
  last_ = frame;
  return stranger_->say(frame.data(), frame.size(), [this] { meanwhile(); });
}

// ---- what is not as it should be ---------------------------------------------------------------------------

uint64_t Attack::odd(uint64_t usual, unsigned size) {
  switch (input_.below(8)) {
    case 0:
      return 0;
    case 1:
      return UINT64_MAX;
    case 2:
      return usual + 1;
    case 3:
      return usual - 1;
    case 4:
      return usual ^ uint64_t { 1 } << input_.below(static_cast<uint8_t>(8 * size));
    case 5:
      return uint64_t{1} << input_.below(static_cast<uint8_t>(8 * size));
    case 6: {
      const uint64_t others[] = {victim_.queues[input_.below(kQueues)].number(),
                                 theirs(input_.below(kQueues)),
                                 mr_rkey(victim_.closed.mr),
                                 mr_rkey(victim_.readable.mr),
                                 mr_rkey(victim_.windowed.mr),
                                 mr_lkey(victim_.open.mr),
                                 victim_.window_key,
                                 victim_.closed.address(),
                                 victim_.readable.address() - 4,
                                 victim_.open.address() + victim_.open.size - 1,
                                 srq_number(victim_.small_shared),
                                 srq_number(victim_.large_shared)};
      return others[input_.below(std::size(others))];
    }
    default:
      return input_.take<uint64_t>();
  }
}

// Most frames stay as they are; of others a field or two change.
void Attack::spoil(FrameBytes& bytes) {
  constexpr uint8_t kOften = 8;
  const uint8_t how = input_.below(kOften);
  FrameStart start;
  std::memcpy(&start, bytes.data(), sizeof start);
  const FrameKind family = family_of(start.kind);
  std::vector<Field> fields;
  for (const Field& field : kFields)
    if (field.kind == family) fields.push_back(field);
  for (uint8_t changes = how == 0 ? 2 : how == 1 ? 1 : 0; changes > 0; --changes) {
    const Field& field = fields[input_.below(static_cast<uint8_t>(fields.size()))];
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + field.offset, field.size);
    value = odd(value, field.size);
    std::memcpy(bytes.data() + field.offset, &value, field.size);
  }
  if (how == 2 && input_.below(16) == 0) bytes[input_.below(sizeof(uint32_t))] ^= input_.byte();  // its length
  // After bytes that are no frame, or that end elsewhere, nothing is in step any more.
  Frame decoded;
  in_step_ &= decode(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), &decoded) == Decoded::kFrame &&
              decoded.head_size + decoded.payload == bytes.size();
}

template <typename Head>
FrameBytes Attack::frame(Head head, uint32_t payload) {
  head.length = static_cast<uint32_t>(sizeof head + payload);
  FrameBytes bytes(sizeof head + payload, input_.byte());
  std::memcpy(bytes.data(), &head, sizeof head);
  spoil(bytes);
  return bytes;
}

// ---- requests ----------------------------------------------------------------------------------------------

// Mostly memory that the request may access.
void Attack::aim(RequestHead& head, uint32_t size) {
  const Part* part = &victim_.open;
  uint64_t from = 0, room = part->size;
  switch (input_.below(16)) {
    case 0:
      part = &victim_.readable;
      room = part->size;
      break;
    case 1:
    case 2:
      part = &victim_.windowed;
      from = Victim::kBound, room = Victim::kBoundSize;
      break;
    case 3:
      part = &victim_.closed;
      room = part->size;
      break;
    case 4:
      part = &victim_.receives;
      room = part->size;
      break;
    default:
      break;
  }
  head.rkey = part == &victim_.windowed ? victim_.window_key : mr_rkey(part->mr);
  const uint64_t most = room - std::min<uint64_t>(room, size);
  head.remote_address = part->address() + from + (most == 0 ? 0 : input_.take<uint32_t>() % most & ~uint64_t{7});
}

RequestHead Attack::request_head(uint32_t queue, uint32_t size) {
  static constexpr uint8_t kOpcodes[] = {
      IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
      IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_CMP_AND_SWP,
      IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV,       static_cast<uint8_t>(kAtomicWrite)};
  const Queue& to = victim_.queues[queue];
  const Course& course = courses_[queue];
  RequestHead head{};
  head.kind = FrameKind::kRequest;
  head.opcode = kOpcodes[input_.below(std::size(kOpcodes))];
  if (to.type == IBV_QPT_UC && input_.below(4) != 0) head.opcode %= 4;
  head.flags = input_.below(2);
  head.connection = static_cast<uint8_t>(to.type == IBV_QPT_XRC_RECV ? IBV_QPT_XRC_SEND : to.type) | IBV_MTU_1024 << 4;
  head.target_qpn = to.number();
  head.source_qpn = theirs(queue);
  head.path_generation = course.path_generation;
  head.number = course.number;
  head.finished_below = input_.below(4) == 0 ? 0 : course.number;
  head.psn = course.psn & 0xffffff;
  head.size = size;
  head.immediate = head.opcode == IBV_WR_SEND_WITH_INV ? victim_.window_key : input_.byte();
  head.srqn = srq_number(input_.below(2) == 0 ? victim_.small_shared : victim_.large_shared);
  head.compare_add = input_.below(3);
  head.swap = input_.byte();
  return head;
}

bool Attack::say_request(uint32_t queue) {
  static constexpr uint32_t kSizes[] = {0, 1, 8, 64, 96, 97, 256, 257, 1024, 5000, 16384};
  uint32_t size = kSizes[input_.below(std::size(kSizes))];
  RequestHead head = request_head(queue, size);
  const bool atomic = head.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || head.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const bool answered = atomic || head.opcode == IBV_WR_RDMA_READ;
  if (atomic || head.opcode == static_cast<uint8_t>(kAtomicWrite)) size = 8;
  head.size = size;
  aim(head, size);
  const FrameBytes bytes = frame(head, answered ? 0 : size);
  said_.push_back(bytes);
  if (said_.size() > 16) said_.erase(said_.begin());
  ++courses_[queue].number;
  courses_[queue].psn += packets_of(size);
  return say(bytes);
}

// A peer that reads no answers asks for more than a socket holds.
bool Attack::say_long_read(uint32_t queue) {
  if (deaf_) queue = kOrdinary;
  for (int i = 0; i < (deaf_ ? 6 : 1); ++i) {
    const uint32_t size = deaf_ ? static_cast<uint32_t>(victim_.open.size) : 16'385 + input_.take<uint16_t>() * 8;
    RequestHead head = request_head(queue, size);
    head.opcode = IBV_WR_RDMA_READ;
    aim(head, size);
    ++courses_[queue].number;
    courses_[queue].psn += packets_of(size);
    if (!say(frame(head, 0))) return false;
  }
  if (deaf_ && input_.below(2) == 1) victim_.register_again();
  return true;
}

// In chunks. They may stop, or go on with a head that differs from the first.
bool Attack::say_long_request(uint32_t queue) {
  static constexpr uint8_t kOpcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
                                         IBV_WR_SEND_WITH_INV};
  const uint32_t size = 16'385 + input_.take<uint16_t>() * (input_.below(16) == 0 ? 8 : 1);
  RequestHead head = request_head(queue, size);
  head.opcode = kOpcodes[input_.below(std::size(kOpcodes))];
  head.immediate = victim_.window_key;
  aim(head, size);
  const uint32_t chunk =
      std::min(kChunkBytes, 1 + (input_.below(2) == 0 ? size : size / (1 + input_.below(6))));
  const uint32_t stops_at = input_.below(4) == 0 ? size / 2 : size;
  bool cut = false;
  for (uint32_t at = 0; at < stops_at; at += chunk) {
    const uint32_t payload = std::min(chunk, size - at);
    head.offset = at;
    RequestHead said = head;
    if (at != 0 && input_.below(8) == 0) said.opcode = input_.below(12), said.srqn ^= input_.below(2);
    if (at != 0 && input_.below(8) == 0) said.srqn = srq_number(victim_.small_shared);
    const FrameBytes bytes = frame(said, said.opcode == IBV_WR_RDMA_READ ? 0 : payload);
    if (!cut && input_.below(32) == 1) {
      // Half of a chunk, and a new connection, over which the whole message is sent again.
      last_ = bytes;
      stranger_->say(bytes.data(), bytes.size() / 2, [this] { meanwhile(); });
      begin_connection();
      cut = true;
      at = 0 - chunk;
      continue;
    }
    if (!say(bytes)) return false;
  }
  if (stops_at != size) return true;
  ++courses_[queue].number;
  courses_[queue].psn += packets_of(size);
  return true;
}

bool Attack::say_datagram() {
  DatagramHead head{};
  head.kind = FrameKind::kDatagram;
  head.target_qpn = input_.below(4) == 0 ? kMulticastQpn : victim_.queues[kDatagrams].number();
  head.source_qpn = theirs(input_.below(4));
  head.qkey = kQkey;
  head.flags = input_.below(4) == 0 ? input_.byte() : uint8_t{0};
  head.path_bits = input_.below(3);
  head.immediate = input_.byte();
  std::memcpy(head.destination, head.target_qpn == kMulticastQpn ? victim_.group.raw : loopback(kVictim).bytes.data(),
              16);
  static constexpr uint32_t kSizes[] = {0, 8, 56, 57, 200, 216, 217, 1024, 4096};
  return say(frame(head, 40 + kSizes[input_.below(std::size(kSizes))]));
}

// ---- answers -----------------------------------------------------------------------------------------------

bool Attack::say_read_data(const RequestHead& to) {
  AnswerHead head{0, FrameKind::kReadData, 0, {}, to.source_qpn, to.target_qpn, to.path_generation, to.number,
                  0};
  const uint32_t chunk = input_.below(2) == 0 ? std::max(to.size, 1u) : 1 + to.size / (1 + input_.below(5));
  for (uint32_t at = 0; at < std::max(to.size, 1u); at += chunk) {
    const uint32_t payload = std::min(chunk, to.size - at);
    head.value = at | uint64_t{to.size} << 32;
    if (!say(frame(head, payload))) return false;
    if (input_.below(16) == 0) break;  // the rest does not come
  }
  return true;
}

bool Attack::say_answer() {
  hear();
  if (asked_.empty()) {
    victim_.post_requests(input_);
    return true;
  }
  const size_t which = input_.byte() % asked_.size();
  const RequestHead to = asked_[which];
  if (input_.below(4) != 0) asked_.erase(asked_.begin() + static_cast<ptrdiff_t>(which));
  AnswerHead head{0, FrameKind::kAck, 0, {}, to.source_qpn, to.target_qpn, to.path_generation, to.number + 1,
                  0};
  if (input_.below(4) == 0) {
    head.kind = static_cast<FrameKind>(2 + input_.below(6));
    if (head.kind == FrameKind::kReadData) head.kind = FrameKind::kReady;
    head.number = to.number;
    head.rnr_timer = 1 + input_.below(3);
    head.value = input_.below(4) == 0 ? input_.take<uint64_t>() : input_.below(80);
    return say(frame(head, 0));
  }
  if (to.opcode == IBV_WR_RDMA_READ) return say_read_data(to);
  if (to.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || to.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    head.kind = FrameKind::kAtomicAnswer;
    head.number = to.number;
    head.value = input_.byte();
  }
  return say(frame(head, 0));
}

bool Attack::say_whereabouts() {
  WhereaboutsHead head{};
  head.kind = FrameKind::kWhereabouts;
  head.qpn = theirs(input_.below(16));
  if (!queries_.empty()) {
    head.qpn = queries_.back().qpn;
    queries_.pop_back();
  }
  head.node = kNode;
  head.slot = 1;
  head.generation = input_.below(8) == 0 ? 0 : 1;
  return say(frame(head, 0));
}

bool Attack::say_noise() {
  FrameBytes noise(1 + input_.byte());
  input_.take(noise.data(), noise.size());
  in_step_ = false;
  return say(noise);
}

// ---- in what order -----------------------------------------------------------------------------------------

bool Attack::step() {
  meanwhile();
  // Mostly the queue pairs that take requests.
  static constexpr uint8_t kTaking[] = {kOrdinary, kOrdinary, kWriteOnly, kUnreliable, kExtended, kExtended};
  const uint8_t what = input_.below(32);
  const uint32_t queue =
      what % 8 == 7 ? input_.below(kQueues) : kTaking[input_.below(static_cast<uint8_t>(std::size(kTaking)))];
  if (what < 10) return say_request(queue);
  if (what < 12) return say_long_read(queue);
  if (what < 16) return say_long_request(queue);
  if (what < 20) return say_answer();
  if (what < 22) return say_datagram();
  switch (what) {
    case 22:
      return say_whereabouts();
    case 23: {
      QueryHead head{};
      head.kind = FrameKind::kQuery;
      head.qpn = victim_.queues[queue].number();
      return say(frame(head, 0));
    }
    case 24:  // as after a broken connection: requests are repeated
      if (input_.below(2) == 0) begin_connection();
      for (const FrameBytes& bytes : said_)
        if (!say(bytes)) return false;
      return true;
    case 25:
      if (said_.empty()) return true;
      return say(said_[input_.byte() % said_.size()]);
    case 26:
      begin_connection();
      return true;
    case 27:
      victim_.post_receives();
      return true;
    case 28:
      victim_.post_requests(input_);
      return true;
    case 29:
      victim_.bind_window();
      return true;
    case 30:  // a new incarnation of the requester
      courses_[queue].path_generation += input_.below(2);
      courses_[queue].number = input_.below(4);
      return true;
    default:
      switch (input_.below(8)) {
        case 0:
          return say_noise();
        case 1:
        case 2:
          deaf_ = !deaf_;
          return true;
        case 3:
          victim_.register_again();
          return true;
        case 4:
          if (victim_.replace(victim_.queues[queue]))
            courses_[queue] = {courses_[queue].path_generation + 1, 0, 0};
          return true;
        default:
          return true;
      }
  }
}

void Attack::settle() {
  deaf_ = false;
  if (!in_step_) return;
  QueryHead query{sizeof query, FrameKind::kQuery, {}, kNobodys, 0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  settled_ = false;
  for (int waited = 0; !settled_ && !stranger_->is_over(); ++waited) {
    require(std::chrono::steady_clock::now() < deadline, "what was said is carried out");
    if (waited % 64 == 0 && !stranger_->say(&query, sizeof query, [this] { meanwhile(); })) return;
    meanwhile();
    if (!settled_) stranger_->wait();
  }
}

}  // namespace verbena::fuzz
