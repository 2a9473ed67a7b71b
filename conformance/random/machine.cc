// SPDX-License-Identifier: BSD-2-Clause
#include "random/machine.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "random/objects.h"
#include "random/text.h"
#include "suite/names.h"

namespace conformance::random {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t both_sides = 3;

// Times --time-scale.
constexpr milliseconds completion_limit{5000}, state_limit{2000}, memory_limit{2000};

[[maybe_unused]] const bool registered = [] {
  register_service(first_kind, last_kind, serve_objects);
  return true;
}();

template <typename Answer, typename Request = wire::Nothing>
Answer ask(Link& link, Ask what, const Request& request = {}) {
  return link.call<Answer>(static_cast<wire::Kind>(what), request);
}

std::string wc_words(const wire::Completion& wc) {
  std::string out = name_of(wc.status) + ", wr_id " + std::to_string(wc.id);
  if (wc.status == IBV_WC_SUCCESS)
    out += ", " + name_of(wc.opcode) + ", byte_len " + std::to_string(wc.bytes);
  return out;
}

std::string words(const Expected& expected) {
  std::string out;
  for (const ibv_wc_status status : expected.statuses) out += (out.empty() ? "" : " or ") + name_of(status);
  out += ", wr_id " + std::to_string(expected.id);
  if (expected.statuses.count(IBV_WC_SUCCESS) != 0) out += ", " + name_of(expected.opcode);
  if (expected.bytes) out += ", byte_len " + std::to_string(*expected.bytes);
  return out;
}

}  // namespace

Claims claims_of(Topology& topology) {
  Claims out = ask<Claims>(topology.near(), Ask::claims);
  if (topology.is_loopback()) return out;
  const Claims far = ask<Claims>(topology.far(), Ask::claims);
  out.is_split = true;
  out.srq = false;  // one SRQ for the ends of all connections would be on one device
  for (bool Claims::*claim : {&Claims::uc, &Claims::ud, &Claims::xrc, &Claims::atomics, &Claims::window1,
                              &Claims::window2, &Claims::send_with_invalidate})
    out.*claim = out.*claim && far.*claim;
  for (uint32_t Claims::*claim : {&Claims::inline_data, &Claims::send_sges, &Claims::receive_sges,
                                  &Claims::srq_sges, &Claims::reads, &Claims::mtu})
    out.*claim = std::min(out.*claim, far.*claim);
  out.cqe = std::min(out.cqe, far.cqe);
  return out;
}

Machine::Machine(Topology& topology, const Setup& setup, const Claims& claims)
    : near_(topology.near()),
      far_(topology.far()),
      is_split_(claims.is_split),
      known_(claims.known),
      setup_(setup) {
  if (is_split_) {
    keys_[0] = ask<Keys>(near_, Ask::make, Make{claims, setup, 1});
    keys_[1] = ask<Keys>(far_, Ask::make, Make{claims, setup, 2});
    exchange_keys();
  } else {
    keys_[0] = keys_[1] = ask<Keys>(near_, Ask::make, Make{claims, setup, both_sides});
  }
  for (uint32_t i = 0; i < setup.connections.size(); ++i) connect(i);
}

void Machine::exchange_keys() {
  ask<wire::Nothing>(near_, Ask::learn, keys_[1]);
  ask<wire::Nothing>(far_, Ask::learn, keys_[0]);
}

void Machine::connect(uint32_t connection) {
  ask<wire::Nothing>(near_, Ask::connect, ConnectEnds{connection});
  if (is_split_) ask<wire::Nothing>(far_, Ask::connect, ConnectEnds{connection});
}

// ---- steps ----

uint32_t Machine::side_of(const Step& step) const {
  if (const auto* receives = std::get_if<PostReceives>(&step))
    return receives->end ? side_of_end(*receives->end) : receives->xrc ? 1 : 0;
  if (const auto* sends = std::get_if<PostSends>(&step)) return side_of_end(sends->end);
  if (const auto* fill = std::get_if<Fill>(&step)) return side_of_buffer(fill->buffer);
  if (const auto* again = std::get_if<RegisterAgain>(&step))
    return side_of_buffer(setup_.regions[again->region].buffer);
  if (const auto* error = std::get_if<ToError>(&step)) return side_of_end(error->end);
  return 0;
}

std::optional<Finding> Machine::run(const Step& step, Model& model) {
  if (std::holds_alternative<Settle>(step)) return settle(model);
  auto finding = carry_out(step);
  if (!finding || !model.may_be_refused(step)) return finding;
  has_ended_ = true;
  return std::nullopt;
}

std::optional<Finding> Machine::carry_out(const Step& step) {
  const auto* again = std::get_if<Reconnect>(&step);
  const auto* renewed = std::get_if<RegisterAgain>(&step);
  const uint32_t own_side = side_of(step);
  std::set<uint32_t>& former = former_lkeys_[is_split_ ? own_side : 0];
  if (renewed != nullptr) former.insert(keys_[own_side].lkeys[renewed->region]);
  for (const uint32_t side : {0u, 1u}) {
    if (again != nullptr ? side == 1 && !is_split_ : side != own_side) continue;
    Ran ran = ask<Ran>(at(side), Ask::run, Run{step});
    if (!ran.refused.empty()) return Finding{Finding::About::kCall, std::move(ran.refused)};
    keys_[side] = std::move(ran.keys);
    if (!is_split_) keys_[0] = keys_[1] = keys_[side];
  }
  if (renewed != nullptr) has_ended_ = former.count(keys_[own_side].lkeys[renewed->region]) != 0;
  const auto* sends = std::get_if<PostSends>(&step);
  const bool changes_keys = renewed != nullptr || (sends != nullptr && sends->list[0].bind);
  if (is_split_ && changes_keys) exchange_keys();
  if (again != nullptr) connect(again->connection);
  return std::nullopt;
}

// ---- what is compared ----

std::optional<Finding> Machine::settle(Model& model) {
  const Expectations& expected = model.expected();
  if (auto finding = take_completions(expected); finding || has_ended_) return finding;
  if (auto finding = compare_states(expected)) return finding;
  return compare_memory(model);
}

std::vector<wire::Completion> Machine::poll() {
  std::vector<wire::Completion> out = ask<wire::Completions>(near_, Ask::poll).list;
  if (!is_split_) return out;
  const auto far = ask<wire::Completions>(far_, Ask::poll).list;
  out.insert(out.end(), far.begin(), far.end());
  return out;
}

std::optional<Finding> Machine::compare(const Expected& expected, const wire::Completion& seen,
                                        EndIndex end) const {
  const auto differs = [&](const std::string& what) {
    return Finding{Finding::About::kCompletion, "a completion of " + end_text(end) + ": " + what +
                                                    "; expected: " + words(expected) +
                                                    "; seen: " + wc_words(seen)};
  };
  const Keys& keys = keys_[side_of_end(end)];
  if (seen.id != expected.id) return differs("another wr_id, so the order");
  if (expected.statuses.count(seen.status) == 0) return differs("the status");
  if (seen.qpn != keys.ends[end].qpn && setup_.connections[end / 2].type != IBV_QPT_XRC_SEND)
    return differs("qp_num " + hex(seen.qpn) + ", not " + hex(keys.ends[end].qpn));
  if (seen.status != IBV_WC_SUCCESS) return std::nullopt;
  if (seen.opcode != expected.opcode) return differs("the opcode");
  if (expected.bytes && seen.bytes != *expected.bytes) return differs("byte_len");
  if (!expected.is_receive) return std::nullopt;
  if (((seen.flags & IBV_WC_WITH_IMM) != 0) != expected.imm.has_value()) return differs("IBV_WC_WITH_IMM");
  if (expected.imm && seen.imm != *expected.imm)
    return differs("imm_data " + hex(seen.imm) + ", not " + hex(*expected.imm));
  if (known_.invalidation_flag) return std::nullopt;
  if (((seen.flags & IBV_WC_WITH_INV) != 0) != expected.invalidated.has_value())
    return differs("IBV_WC_WITH_INV");
  if (expected.invalidated && seen.invalidated != keys.windows[*expected.invalidated])
    return differs("invalidated_rkey");
  return std::nullopt;
}

std::optional<Finding> Machine::take_completions(const Expectations& expected) {
  struct Place {
    EndIndex end;
    bool is_receive;
  };
  const size_t ends = 2 * setup_.connections.size();
  std::map<uint64_t, Place> places;
  std::vector<size_t> next_send(ends), next_receive(ends);
  size_t missing = 0;
  for (EndIndex end = 0; end < ends; ++end) {
    for (const Expected& each : expected.sends[end]) places[each.id] = {end, false};
    for (const Expected& each : expected.receives[end]) places[each.id] = {end, true};
    missing += expected.sends[end].size() + expected.receives[end].size();
  }
  const auto deadline = Clock::now() + scaled(completion_limit);
  for (bool is_last_look = missing == 0;;) {
    const std::vector<wire::Completion> came = poll();
    for (const wire::Completion& wc : came) {
      const auto place = places.find(wc.id);
      if (place == places.end())
        return Finding{Finding::About::kCompletion,
                       "expected: no completion of this request; seen: " + wc_words(wc)};
      const auto [end, is_receive] = place->second;
      const auto& queue = is_receive ? expected.receives[end] : expected.sends[end];
      size_t& next = is_receive ? next_receive[end] : next_send[end];
      if (next == queue.size())
        return Finding{Finding::About::kCompletion, "a second completion of one request: " + wc_words(wc)};
      if (auto finding = compare(queue[next++], wc, end)) return finding;
      --missing;
    }
    if (!came.empty()) continue;
    if (is_last_look && missing == 0) return std::nullopt;
    is_last_look = missing == 0;
    if (missing == 0) continue;
    if (Clock::now() > deadline) break;
    give_way();
  }
  waited_in_vain_ += completion_limit;
  for (EndIndex end = 0; end < ends; ++end)
    for (const auto& [queue, next] :
         {std::pair(&expected.sends[end], next_send[end]), {&expected.receives[end], next_receive[end]}})
      if (next < queue->size()) {
        // The answer was lost, and the request is sent again for ever.
        has_ended_ = known_.endless_retries && (*queue)[next].statuses.count(IBV_WC_RETRY_EXC_ERR) != 0;
        if (has_ended_) return std::nullopt;
        return Finding{Finding::About::kCompletion,
                       "a completion of " + end_text(end) + "; expected: " + words((*queue)[next]) +
                           "; seen: none within " + std::to_string(scaled(completion_limit).count()) + " ms"};
      }
  return std::nullopt;
}

std::optional<Finding> Machine::compare_states(const Expectations& expected) {
  for (EndIndex end = 0; end < 2 * setup_.connections.size(); ++end) {
    // A responder changes its state when it has refused a request, which the requester may know first.
    const auto deadline = Clock::now() + scaled(state_limit);
    const auto now = [&] {
      return ask<wire::State>(at(side_of_end(end)), Ask::state, wire::OfEnd{end}).state;
    };
    ibv_qp_state seen = now();
    while (seen != expected.states[end] && Clock::now() < deadline) give_way(), seen = now();
    if (seen == expected.states[end]) continue;
    waited_in_vain_ += state_limit;
    return Finding{Finding::About::kState, "the state of " + end_text(end) +
                                               "; expected: " + state_name(expected.states[end]) +
                                               "; seen: " + state_name(seen)};
  }
  return std::nullopt;
}

std::optional<Finding> Machine::compare_memory(Model& model) {
  const auto deadline = Clock::now() + scaled(memory_limit);
  for (uint32_t buffer = 0; buffer < setup_.buffers.size(); ++buffer) {
    const auto& expected = model.memory(buffer);
    const auto now = [&] {
      return ask<Content>(at(side_of_buffer(buffer)), Ask::bytes, OfBuffer{buffer}).bytes;
    };
    std::string bytes = now();
    if (bytes.size() != expected.size())
      throw Deviation{"the far end's memory has another size", Where::current()};
    for (size_t at = 0; at < expected.size();) {
      const auto seen = static_cast<uint8_t>(bytes[at]);
      if (expected[at].may_be(seen)) {
        ++at;
      } else if (Clock::now() > deadline) {
        waited_in_vain_ += memory_limit;
        const std::string wanted = expected[at].is_known()
                                       ? hex(expected[at].value())
                                       : "one of " + std::to_string(expected[at].count()) + " values";
        return Finding{Finding::About::kMemory, "byte " + std::to_string(at) + " of buffer " +
                                                    std::to_string(buffer) + "; expected: " + wanted +
                                                    "; seen: " + hex(seen)};
      } else {
        give_way();  // UC says nothing of the arrival of a WRITE
        bytes = now();
        at = 0;
      }
    }
    model.observe(buffer, reinterpret_cast<const uint8_t*>(bytes.data()));
  }
  return std::nullopt;
}

}  // namespace conformance::random
