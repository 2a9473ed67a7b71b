// SPDX-License-Identifier: BSD-2-Clause
//
// An end for tests: at this side or at the other, in this process or in another one. Each call is one request
// to the end's host (messages.h) and throws what Link::call throws.
#pragma once

#include <string>
#include <vector>

#include "suite/test.h"
#include "support/link.h"

namespace conformance {

using wire::Completion;
using wire::Element;
using wire::EndFacts;
using wire::ReceiveRequest;
using wire::SendRequest;

std::string completion_text(const Completion& completion);  // status, opcode, id, bytes

class Endpoint {
 public:
  Endpoint(Link& link, const wire::MakeEnd& spec);
  ~Endpoint();
  Endpoint(Endpoint&& other) noexcept;
  Endpoint& operator=(Endpoint&&) = delete;

  const EndFacts& facts() const { return facts_; }
  uint64_t address(int64_t offset = 0) const { return facts_.address + static_cast<uint64_t>(offset); }
  bool is_datagram() const { return spec_.type == IBV_QPT_UD; }
  // 40 for datagrams: where the data begin in a receive buffer.
  uint32_t data_offset() const { return is_datagram() ? 40 : 0; }

  // 0, or errno values.
  int connect(const EndFacts& other, wire::Connect how = {});
  int modify(wire::Modify how);
  int to_state(ibv_qp_state state);  // nothing but IBV_QP_STATE
  int post(const SendRequest& request) { return post(std::vector<SendRequest>{request}); }
  int post(const std::vector<SendRequest>& list);
  int receive(const std::vector<ReceiveRequest>& list);
  int receive(int64_t offset, uint32_t length, uint64_t id = 1);  // a length of 0: no element

  ibv_qp_state state() { return query().state; }
  // Waits up to three seconds (times --time-scale) for this one: a completion in error may be there sooner
  // than the state.
  ibv_qp_state state(ibv_qp_state awaited);
  wire::State query();

  // Returns the completions when `count` of them are there or the time is over.
  std::vector<Completion> poll(uint32_t count, std::chrono::milliseconds time, bool receives = false);
  // The same; throws Deviation when they are not there within the time (times --time-scale).
  std::vector<Completion> completions(uint32_t count, bool receives = false, Where where = Where::current(),
                                      std::chrono::milliseconds time = std::chrono::seconds(5));
  Completion completion(Where where = Where::current()) { return completions(1, false, where).front(); }
  Completion received(Where where = Where::current()) { return completions(1, true, where).front(); }
  testing::AssertionResult stays_empty(bool receives = false,
                                       std::chrono::milliseconds time = std::chrono::milliseconds(20));

  // Bytes of the buffer. The pattern is that of support/pattern.h.
  void write(uint64_t offset, const std::string& bytes);
  std::string read(uint64_t offset, uint64_t length);
  uint64_t word(uint64_t offset);  // eight bytes, in the order of the end's machine
  void set_word(uint64_t offset, uint64_t value);
  void fill(uint64_t offset, uint64_t length, uint8_t byte);
  void fill_pattern(uint64_t offset, uint64_t length, uint64_t seed, uint64_t first = 0);
  testing::AssertionResult has(uint64_t offset, uint64_t length, uint8_t byte);
  testing::AssertionResult has_pattern(uint64_t offset, uint64_t length, uint64_t seed, uint64_t first = 0);
  testing::AssertionResult untouched(uint64_t offset, uint64_t length);

  wire::Region register_region(uint64_t offset, uint64_t length, int access, bool in_other_pd = false);
  int deregister_region(const wire::Region& region);
  wire::Window bind_window(bool second_type, uint64_t offset, uint64_t length, unsigned access);

  int attach(const ibv_gid& group, uint16_t lid) { return multicast(group, lid, true); }
  int detach(const ibv_gid& group, uint16_t lid) { return multicast(group, lid, false); }
  int destroy_qp();
  wire::Event async_event(std::chrono::milliseconds time = std::chrono::seconds(5));
  int arm(bool receives = true, bool solicited_only = false);
  wire::Event cq_event(std::chrono::milliseconds time = std::chrono::seconds(5));
  wire::HammerAnswer hammer(const SendRequest& request, uint32_t times,
                            std::chrono::milliseconds time = std::chrono::seconds(20));

 private:
  int multicast(const ibv_gid& group, uint16_t lid, bool attach);
  testing::AssertionResult check(wire::Pattern pattern);

  Link* link_;
  wire::MakeEnd spec_;
  EndFacts facts_;
};

// Requests. Elements and remote addresses are given by offsets.
SendRequest send_request(const std::vector<Element>& elements, uint64_t id = 1,
                         ibv_wr_opcode opcode = IBV_WR_SEND);
SendRequest remote_request(ibv_wr_opcode opcode, const std::vector<Element>& elements, const EndFacts& target,
                           int64_t offset = 0, uint64_t id = 1);

inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool takes_a_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace conformance
