// SPDX-License-Identifier: BSD-2-Clause
#include "random/execute.h"

#include <chrono>
#include <map>
#include <set>

#include "random/model.h"
#include "support/pair.h"

namespace conformance::random {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto patience = std::chrono::seconds(5);
constexpr uint32_t wanted_inline = 32;
constexpr const char* reached_mark = "reached";

// The clause with this id; a model that names one that does not exist is a fault of the suite (selftest.cc).
ClauseId clause(const char* id) { return ClauseId::find(id).value_or(ClauseId::at(0)); }

class Execution final : public PairTest {
 public:
  explicit Execution(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

 private:
  void run() override {
    make_pairs();
    Model model(*program_, claims_);
    make_memory(model);
    for (const Step& step : program_->steps) {
      if (model.needs_drain(step) && !drain(model)) return;
      if (const auto action = model.apply(step)) {
        trace("step: " + text_of(*program_, step));
        if (!carry_out(model, *action)) return;
      }
    }
    drain(model);
    for (const std::string& id : reached_)
      if (const auto found = ClauseId::find(id)) observe(*found, reached_mark);
  }

  Endpoint& end(size_t number) {
    return number % 2 == 0 ? pairs_[number / 2]->near : pairs_[number / 2]->far;
  }

  wire::Connect path_of(const Shape& shape) const {
    wire::Connect path;
    path.access = shape.type == IBV_QPT_UD ? 0 : static_cast<int32_t>(IBV_ACCESS_REMOTE_WRITE);
    if (shape.type == IBV_QPT_RC) path.access |= IBV_ACCESS_REMOTE_READ;
    if (shape.type == IBV_QPT_RC && claims_.atomics) path.access |= IBV_ACCESS_REMOTE_ATOMIC;
    return path;
  }

  wire::MakeEnd spec_of(const Shape& shape, uint32_t inline_data, uint32_t lender) const {
    wire::MakeEnd spec;
    spec.type = shape.type;
    spec.send_depth = spec.receive_depth = queue_depth;
    spec.inline_data = inline_data;
    spec.buffer = buffer_size;
    spec.separate_cqs = true;
    spec.srq = shape.has_srq;
    spec.shares = shape.shares ? lender : 0;
    if (claims_.windows) spec.access |= IBV_ACCESS_MW_BIND;
    return spec;
  }

  void make_pair(const Shape& shape, uint32_t inline_data) {
    PairSpec spec;
    spec.both = spec_of(shape, inline_data, pairs_.empty() ? 0 : pairs_[0]->near.facts().end);
    spec.far = spec_of(shape, inline_data, pairs_.empty() ? 0 : pairs_[0]->far.facts().end);
    spec.path = path_of(shape);
    pairs_.push_back(std::make_unique<Pair>(topology(), spec));
  }

  void make_pairs() {
    const ibv_device_attr& attributes = device().attributes();
    claims_.atomics = attributes.atomic_cap != IBV_ATOMIC_NONE && topology().is_loopback();
    claims_.windows = (attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0 && topology().is_loopback();
    uint32_t inline_data = wanted_inline;
    for (const Shape& shape : program_->shapes) {
      if (shape.has_srq && attributes.max_srq == 0) throw NotClaimed{"max_srq is 0"};
      try {
        make_pair(shape, inline_data);
      } catch (const Deviation&) {  // less inline data may be what it has
        inline_data = 0;
        make_pair(shape, inline_data);
      }
    }
    claims_.inline_data = wanted_inline;
    for (const auto& pair : pairs_)
      for (const Endpoint* one : {&pair->near, &pair->far})
        claims_.inline_data = std::min(claims_.inline_data, one->facts().inline_data);
  }

  void make_memory(const Model& model) {
    keys_.resize(model.memory_count());
    owners_.assign(model.memory_count(), ~size_t{0});
    for (size_t number = 0; number < model.end_count(); ++number) {
      const size_t memory = model.memory_of(number);
      if (owners_[memory] != ~size_t{0}) continue;
      owners_[memory] = number;
      end(number).fill_pattern(0, buffer_size, Model::pattern(memory));
      keys_[memory].push_back({end(number).facts().rkey, {}, number});
    }
  }

  bool carry_out(const Model& model, const Action& action) {
    Endpoint &here = end(action.end), &there = end(action.other);
    auto& keys = keys_[model.memory_of(action.other)];
    int error = 0;
    switch (action.kind) {
      case Kind::receive:
        error = here.receive(action.local, action.length, action.id);
        break;
      case Kind::add_region: {
        const wire::Region region =
            there.register_region(action.remote, action.length, static_cast<int>(action.access));
        error = region.error;
        keys.push_back({region.rkey, region, action.other});
        break;
      }
      case Kind::add_window: {
        const wire::Window window = there.bind_window(false, action.remote, action.length, action.access);
        if (window.status != IBV_WC_SUCCESS) error = EINVAL;
        keys.push_back({window.rkey, {}, action.other});
        break;
      }
      case Kind::drop_region:
        error = end(keys[action.key].end).deregister_region(keys[action.key].region);
        break;
      case Kind::recover:
        for (Endpoint* one : {&here, &there})
          if (error == 0) error = one->to_state(IBV_QPS_RESET);
        if (error == 0) pairs_[action.pair]->connect();
        break;
      default:
        error = here.post(request_of(action, there, keys[action.key].rkey));
    }
    if (error != 0) ADD_FAILURE() << "expected: success; seen: " << errno_text(error);
    return error == 0;
  }

  SendRequest request_of(const Action& action, const Endpoint& there, uint32_t rkey) const {
    SendRequest request = remote_request(opcode_of(action), {}, there.facts(), action.remote, action.id);
    if (action.length > 0) request.elements = {{action.local, action.length}};
    request.flags = 0;
    if (action.is_signaled) request.flags |= IBV_SEND_SIGNALED;
    if (action.is_inline) request.flags |= IBV_SEND_INLINE;
    request.rkey = rkey;
    request.imm = action.imm;
    request.compare_add = action.compare_add;
    request.swap = action.swap;
    return request;
  }

  static ibv_wr_opcode opcode_of(const Action& action) {
    switch (action.kind) {
      case Kind::send:
        return action.has_imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      case Kind::write:
        return action.has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
      case Kind::read:
        return IBV_WR_RDMA_READ;
      case Kind::fetch_add:
        return IBV_WR_ATOMIC_FETCH_AND_ADD;
      default:
        return IBV_WR_ATOMIC_CMP_AND_SWP;
    }
  }

  // Everything that the model expects is there, in its order, and nothing else. False at a deviation.
  bool drain(Model& model) {
    for (const Action& action : model.closing())
      if (!carry_out(model, action)) return false;
    for (size_t number = 0; number < model.end_count(); ++number)
      if (!same(number, model.sends(number), false) || !same(number, model.receives(number), true))
        return false;
    for (size_t memory = 0; memory < model.memory_count(); ++memory)
      if (!same_bytes(model, memory)) return false;
    model.drained();
    return !HasFailure();
  }

  static bool same_status(const Completion& it, const Expected& one) {
    return one.any_error ? it.status != IBV_WC_SUCCESS : it.status == one.status;
  }

  static bool same_contents(const Completion& it, const Expected& one) {
    const bool has_imm = (it.flags & IBV_WC_WITH_IMM) != 0;
    return it.bytes == one.bytes && has_imm == one.imm.has_value() && (!has_imm || it.imm == *one.imm);
  }

  bool same(size_t number, const std::deque<Expected>& expected, bool receives) {
    const std::string whose = std::string(number % 2 == 0 ? "near" : "far") + " end of pair " +
                              std::to_string(number / 2) + ", " + (receives ? "receives: " : "sends: ");
    const auto wanted = static_cast<uint32_t>(expected.size());
    const auto seen = end(number).poll(wanted + 1, std::chrono::milliseconds(0), receives);
    std::vector<Completion> all = seen;
    if (all.size() < wanted) {
      const auto rest = end(number).poll(wanted - static_cast<uint32_t>(all.size()), patience, receives);
      all.insert(all.end(), rest.begin(), rest.end());
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const Expected& one = expected[i];
      const About about(clause(one.clause));
      if (i >= all.size()) {
        ADD_FAILURE() << whose << "expected: wr_id " << one.id << " with " << name_of(one.status)
                      << "; seen: no completion";
        return false;
      }
      const Completion& it = all[i];
      const bool is_success = one.status == IBV_WC_SUCCESS;
      const bool fits = it.id == one.id && same_status(it, one) && (!is_success || it.opcode == one.opcode) &&
                        (!is_success || !receives || same_contents(it, one));
      reached_.insert(one.clause);
      if (fits) continue;
      ADD_FAILURE() << whose << "expected: wr_id " << one.id << " with " << name_of(one.status)
                    << (is_success ? ", " + name_of(one.opcode) : std::string())
                    << (receives && is_success ? ", byte_len " + std::to_string(one.bytes) : std::string())
                    << (one.imm ? ", imm_data " + std::to_string(*one.imm) : std::string())
                    << "; seen: " << completion_text(it) << ", wc_flags " << it.flags << ", imm_data "
                    << it.imm;
      return false;
    }
    if (all.size() <= expected.size()) return true;
    ABOUT("order.completions")
    ADD_FAILURE() << whose
                  << "expected: no further completion; seen: " << completion_text(all[expected.size()]);
    return false;
  }

  // What was written remotely is there at the latest when something later is: until then it is waited for.
  bool same_bytes(const Model& model, size_t memory) {
    const auto deadline = Clock::now() + scaled(patience);
    for (;;) {
      const std::string bytes = end(owners_[memory]).read(0, buffer_size);
      const auto at = model.mismatch(memory, bytes);
      if (!at) return true;
      if (Clock::now() < deadline) {
        give_way();
        continue;
      }
      const About about(clause(model.writer(memory, *at)));
      ADD_FAILURE() << "byte " << *at << " of the " << (owners_[memory] % 2 == 0 ? "near" : "far")
                    << " end of pair " << owners_[memory] / 2
                    << "; expected: " << int{model.byte(memory, *at)}
                    << "; seen: " << int{static_cast<uint8_t>(bytes[*at])};
      return false;
    }
  }

  struct RemoteKey {
    uint32_t rkey;
    wire::Region region;  // of add_region
    size_t end;           // that registered it
  };

  std::shared_ptr<const Program> program_;
  Claims claims_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<std::vector<RemoteKey>> keys_;  // of each memory
  std::vector<size_t> owners_;                // of each memory: an end that has it
  std::set<std::string> reached_{"order.completions", "ibv_reg_mr.fields"};  // which each drain looks at
};

std::map<std::string, std::shared_ptr<const Program>>& programs() {
  static std::map<std::string, std::shared_ptr<const Program>> all;
  return all;
}

}  // namespace

TestInfo test_of(std::shared_ptr<const Program> program, const std::string& name) {
  TestInfo out{"random",
               name,
               {},
               {},
               Traits().limit(60),
               __FILE__,
               __LINE__,
               [program]() -> testing::Test* {
                 return new Execution(program); }};
  for (const std::string& id : model_clauses())
    if (const auto found = ClauseId::find(id)) out.clauses.push_back(*found);
  return out;
}

void register_programs(uint64_t seed, int count) {
  for (int i = 0; i < count; ++i) {
    const uint64_t own = seed + static_cast<uint64_t>(i);
    const auto program = std::make_shared<const Program>(generate(own));
    const std::string name = "Seed" + std::to_string(own);
    programs()["random." + name] = program;
    register_generated("random", name, model_clauses(), Traits().limit(60), __FILE__, __LINE__,
                       [program]() -> testing::Test* { return new Execution(program); });
  }
}

void mark_unreached(std::vector<TestResult>& results) {
  std::set<size_t> reached;
  for (TestResult& result : results) {
    for (const Finding& finding : result.findings)
      if (finding.about && finding.kind != Finding::Kind::not_tested) reached.insert(finding.about->index());
    std::erase_if(result.findings, [](const Finding& finding) {
      return finding.kind == Finding::Kind::observation && finding.text == reached_mark;
    });
  }
  if (results.empty() || results.front().end != TestResult::End::finished) return;
  for (const std::string& id : model_clauses()) {
    const auto found = ClauseId::find(id);
    if (found && !reached.contains(found->index()))
      results.front().findings.push_back({Finding::Kind::not_tested, *found, "no program reaches it"});
  }
}

std::shared_ptr<const Program> program_of(const TestInfo& test) {
  const auto found = programs().find(test.full_name());
  return found == programs().end() ? nullptr : found->second;
}

}  // namespace conformance::random
