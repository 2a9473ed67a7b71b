// SPDX-License-Identifier: BSD-2-Clause
#include "support/endpoint.h"

#include <cstring>

#include "support/buffer.h"

namespace conformance {

using std::chrono::milliseconds;
using wire::Kind;

namespace {
// Time that a slow machine needs for the pages of a buffer: 10 MB per second.
milliseconds page_time(const wire::MakeEnd& spec) { return scaled(milliseconds(spec.buffer / 10'000)); }
uint32_t scaled_count(milliseconds time) { return static_cast<uint32_t>(scaled(time).count()); }
}  // namespace

std::string completion_text(const Completion& completion) {
  const std::string id = ", wr_id " + std::to_string(completion.id);
  if (completion.status != IBV_WC_SUCCESS) return name_of(completion.status) + id;
  return name_of(completion.status) + ", " + name_of(completion.opcode) + id + ", byte_len " +
         std::to_string(completion.bytes);
}

Endpoint::Endpoint(Link& link, const wire::MakeEnd& spec)
    : link_(&link), spec_(spec), facts_(link.call<EndFacts>(Kind::make, spec, page_time(spec))) {}

Endpoint::Endpoint(Endpoint&& other) noexcept
    : link_(std::exchange(other.link_, nullptr)), spec_(other.spec_), facts_(other.facts_) {}

Endpoint::~Endpoint() {
  if (link_ == nullptr) return;
  try {
    link_->call<wire::Result>(Kind::destroy, wire::Destroy{facts_.end, wire::Part::all}, page_time(spec_));
  } catch (...) {  // a host that is gone has destroyed it
  }
}

int Endpoint::connect(const EndFacts& other, wire::Connect how) {
  how.end = facts_.end;
  how.other = other;
  if (how.access == 0) how.access = spec_.access & ~IBV_ACCESS_LOCAL_WRITE & ~IBV_ACCESS_MW_BIND;
  return link_->call<wire::Result>(Kind::connect, how).error;
}

int Endpoint::modify(wire::Modify how) {
  how.end = facts_.end;
  return link_->call<wire::Result>(Kind::modify, how).error;
}

int Endpoint::to_state(ibv_qp_state state) {
  wire::Modify how;
  how.mask = IBV_QP_STATE;
  how.state = state;
  return modify(how);
}

wire::State Endpoint::query() { return link_->call<wire::State>(Kind::query, wire::OfEnd{facts_.end}); }

ibv_qp_state Endpoint::state(ibv_qp_state awaited) {
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
  ibv_qp_state out = state();
  while (out != awaited && std::chrono::steady_clock::now() < deadline) {
    give_way();
    out = state();
  }
  return out;
}

int Endpoint::post(const std::vector<SendRequest>& list) {
  return link_->call<wire::Result>(Kind::send, wire::Send{facts_.end, list}).error;
}

int Endpoint::receive(const std::vector<ReceiveRequest>& list) {
  return link_->call<wire::Result>(Kind::receive, wire::Receive{facts_.end, list}).error;
}

int Endpoint::receive(int64_t offset, uint32_t length, uint64_t id) {
  ReceiveRequest request{id, {}};
  if (length > 0) request.elements.push_back({offset, length});
  return receive({request});
}

std::vector<Completion> Endpoint::poll(uint32_t count, milliseconds time, bool receives) {
  const wire::Poll request{facts_.end, receives, count, static_cast<uint32_t>(time.count())};
  return link_->call<wire::Completions>(Kind::poll, request, time).list;
}

std::vector<Completion> Endpoint::completions(uint32_t count, bool receives, Where where, milliseconds time) {
  std::vector<Completion> list = poll(count, scaled(time), receives);
  if (list.size() < count)
    throw Deviation{"expected: " + std::to_string(count) +
                        " completions; seen: " + std::to_string(list.size()) + " within " +
                        std::to_string(scaled(time).count()) + " ms",
                    where};
  return list;
}

testing::AssertionResult Endpoint::stays_empty(bool receives, milliseconds time) {
  const auto list = poll(1, scaled(time), receives);
  if (list.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected: no completion; seen: " << completion_text(list[0]);
}

void Endpoint::write(uint64_t offset, const std::string& bytes) {
  link_->call<wire::Nothing>(Kind::write, wire::Bytes{facts_.end, offset, 0, bytes});
}

std::string Endpoint::read(uint64_t offset, uint64_t length) {
  std::string bytes = link_->call<wire::Bytes>(Kind::read, wire::Bytes{facts_.end, offset, length, {}}).bytes;
  if (bytes.size() != length) throw Deviation{"the host of the far end: short answer", Where::current()};
  return bytes;
}

uint64_t Endpoint::word(uint64_t offset) {
  uint64_t value = 0;
  memcpy(&value, read(offset, sizeof value).data(), sizeof value);
  return value;
}

void Endpoint::set_word(uint64_t offset, uint64_t value) {
  write(offset, std::string(reinterpret_cast<const char*>(&value), sizeof value));
}

void Endpoint::fill(uint64_t offset, uint64_t length, uint8_t byte) {
  link_->call<wire::Nothing>(Kind::fill, wire::Pattern{facts_.end, offset, length, 0, 0, byte});
}

void Endpoint::fill_pattern(uint64_t offset, uint64_t length, uint64_t seed, uint64_t first) {
  link_->call<wire::Nothing>(Kind::fill, wire::Pattern{facts_.end, offset, length, seed, first, 0},
                             scaled(std::chrono::seconds(20)));
}

testing::AssertionResult Endpoint::check(wire::Pattern pattern) {
  pattern.end = facts_.end;
  const auto found = link_->call<wire::Mismatch>(Kind::check, pattern, scaled(std::chrono::seconds(20)));
  if (found.offset == ~uint64_t{0}) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "byte " << found.offset << " of " << pattern.length << " from offset "
                                     << pattern.offset << "; expected: " << int{found.expected}
                                     << "; seen: " << int{found.seen};
}

testing::AssertionResult Endpoint::has(uint64_t offset, uint64_t length, uint8_t byte) {
  return check({0, offset, length, 0, 0, byte});
}

testing::AssertionResult Endpoint::has_pattern(uint64_t offset, uint64_t length, uint64_t seed,
                                               uint64_t first) {
  return check({0, offset, length, seed, first, 0});
}

testing::AssertionResult Endpoint::untouched(uint64_t offset, uint64_t length) {
  return has(offset, length, Buffer::untouched);
}

wire::Region Endpoint::register_region(uint64_t offset, uint64_t length, int access, bool in_other_pd) {
  return link_->call<wire::Region>(Kind::register_region,
                                   wire::RegisterRegion{facts_.end, offset, length, access, in_other_pd});
}

int Endpoint::deregister_region(const wire::Region& region) {
  return link_->call<wire::Result>(Kind::deregister_region, wire::OfRegion{facts_.end, region.region}).error;
}

wire::Window Endpoint::bind_window(bool second_type, uint64_t offset, uint64_t length, unsigned access) {
  return link_->call<wire::Window>(Kind::bind_window,
                                   wire::BindWindow{facts_.end, second_type, offset, length, access});
}

int Endpoint::destroy_qp() {
  return link_->call<wire::Result>(Kind::destroy, wire::Destroy{facts_.end, wire::Part::qp}).error;
}

wire::Event Endpoint::async_event(milliseconds time) {
  return link_->call<wire::Event>(Kind::async_event, wire::AwaitEvent{facts_.end, scaled_count(time)},
                                  scaled(time));
}

int Endpoint::arm(bool receives, bool solicited_only) {
  return link_->call<wire::Result>(Kind::arm, wire::Arm{facts_.end, receives, solicited_only}).error;
}

wire::Event Endpoint::cq_event(milliseconds time) {
  return link_->call<wire::Event>(Kind::cq_event, wire::AwaitEvent{facts_.end, scaled_count(time)},
                                  scaled(time));
}

wire::HammerAnswer Endpoint::hammer(const SendRequest& request, uint32_t times, milliseconds time) {
  return link_->call<wire::HammerAnswer>(
      Kind::hammer, wire::Hammer{facts_.end, times, scaled_count(time), request}, scaled(time));
}

int Endpoint::multicast(const ibv_gid& group, uint16_t lid, bool attach) {
  wire::Multicast request{facts_.end, attach, {}, lid};
  memcpy(request.gid.data(), group.raw, request.gid.size());
  return link_->call<wire::Result>(Kind::multicast, request).error;
}

SendRequest send_request(const std::vector<Element>& elements, uint64_t id, ibv_wr_opcode opcode) {
  SendRequest request;
  request.opcode = opcode;
  request.id = id;
  request.elements = elements;
  return request;
}

SendRequest remote_request(ibv_wr_opcode opcode, const std::vector<Element>& elements, const EndFacts& target,
                           int64_t offset, uint64_t id) {
  SendRequest request = send_request(elements, id, opcode);
  request.remote = target.address + static_cast<uint64_t>(offset);
  request.rkey = target.rkey;
  return request;
}

}  // namespace conformance
