// SPDX-License-Identifier: BSD-2-Clause
//
// The whole table of transitions, generated: each legal one, with each required attribute left out in turn,
// each optional one added in turn, and with attributes that do not belong; and each illegal one tried.
#include <algorithm>
#include <cctype>
#include <string>

#include "support/fixture.h"
#include "support/objects.h"
#include "support/transitions.h"

namespace conformance {
namespace {

constexpr ibv_qp_state reachable[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                      IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

class TableTest : public DeviceTest {
 protected:
  explicit TableTest(ibv_qp_type type) : type_(type) {}

  // A QP of the type in `state`, connected to itself.
  Qp qp_in(ibv_qp_state state) {
    if (!pd_) pd_ = make_pd(device());
    if (!cq_) cq_ = make_cq(device());
    QpSpec spec;
    spec.type = type_;
    Qp qp = make_qp(pd_, cq_, spec);
    values_ = attributes_for(device(), {.destination = qp->qp_num});
    bring_to(qp, state, values_);
    return qp;
  }

  ibv_qp_attr values(ibv_qp_state from, ibv_qp_state to) const {
    ibv_qp_attr attr = values_;
    attr.qp_state = to;
    attr.cur_qp_state = from;
    return attr;
  }

  const ibv_qp_type type_;
  ibv_qp_attr values_ = {};
  Pd pd_;
  Cq cq_;
};

class LegalTest : public TableTest {
 public:
  LegalTest(ibv_qp_type type, Transition transition) : TableTest(type), row_(transition) {}

 protected:
  int try_mask(ibv_qp* qp, int mask) { return modify(qp, values(row_.from, row_.to), IBV_QP_STATE | mask); }
  const Transition row_;
};

class Required final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    Qp qp = qp_in(row_.from);
    EXPECT_TRUE(succeeded(try_mask(qp, row_.required)));
    EXPECT_EQ(state_of(qp), row_.to);
  }
};

class LeftOut final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    Qp qp = qp_in(row_.from);
    for (const int bit : attribute_bits()) {
      if ((row_.required & bit) == 0) continue;
      EXPECT_TRUE(refused(try_mask(qp, row_.required & ~bit))) << "without " << attribute_name(bit);
      EXPECT_EQ(state_of(qp), row_.from) << "without " << attribute_name(bit);
      if (HasFailure()) qp = qp_in(row_.from);
    }
    EXPECT_TRUE(succeeded(try_mask(qp, row_.required))) << "after the refusals";
  }
};

class Optional final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    for (const int bit : attribute_bits()) {
      // IBV_QP_PORT in SQD is the kernel's table alone; IBV_QP_AV of UC fails in uverbs, which adds the port.
      const bool doubtful = row_.from == IBV_QPS_SQD && row_.to == IBV_QPS_SQD &&
                            (bit == IBV_QP_PORT || (bit == IBV_QP_AV && type_ == IBV_QPT_UC));
      if ((row_.optional & bit) == 0 || doubtful) continue;
      Qp qp = qp_in(row_.from);
      EXPECT_TRUE(succeeded(try_mask(qp, row_.required | bit))) << "with " << attribute_name(bit);
      EXPECT_EQ(state_of(qp), row_.to) << "with " << attribute_name(bit);
    }
  }
};

class Extra final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    Qp qp = qp_in(row_.from);
    for (const int bit : attribute_bits()) {
      if (((row_.required | row_.optional) & bit) != 0) continue;
      EXPECT_TRUE(refused(try_mask(qp, row_.required | bit))) << "with " << attribute_name(bit);
      EXPECT_EQ(state_of(qp), row_.from) << "with " << attribute_name(bit);
      if (HasFailure()) qp = qp_in(row_.from);
    }
  }
};

class Illegal final : public TableTest {
 public:
  Illegal(ibv_qp_type type, ibv_qp_state from) : TableTest(type), from_(from) {}

 private:
  void run() override {
    Qp qp = qp_in(from_);
    for (const ibv_qp_state to : all_states) {
      if (transition_of(type_, from_, to) || (from_ == IBV_QPS_RESET && to == IBV_QPS_ERR)) continue;
      // With no attribute, and with those that lead there from the state before.
      for (const ibv_qp_state before : {from_, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
        const auto usual = transition_of(type_, before, to);
        const int mask = usual ? usual->required : 0;
        EXPECT_TRUE(refused(modify(qp, values(from_, to), IBV_QP_STATE | mask))) << "to " << state_name(to);
        EXPECT_EQ(state_of(qp), from_) << "after trying " << state_name(to);
        if (HasFailure()) return;
      }
    }
  }
  const ibv_qp_state from_;
};

class ResetToError final : public TableTest {
 public:
  ResetToError(ibv_qp_type type, ClauseId clause) : TableTest(type), clause_(clause) {}

 private:
  void run() override {
    Qp qp = qp_in(IBV_QPS_RESET);
    const int error = modify(qp, values(IBV_QPS_RESET, IBV_QPS_ERR), IBV_QP_STATE);
    EXPECT_GE(error, 0);
    EXPECT_EQ(state_of(qp), error == 0 ? IBV_QPS_ERR : IBV_QPS_RESET);
    observe(clause_, error == 0 ? "goes to ERR" : "refused with " + errno_text(error));
  }
  const ClauseId clause_;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string camel(std::string text) {
  text = lower(text);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

void add(const std::string& name, const std::string& clause, std::function<testing::Test*()> make) {
  register_generated("qp_table", name, {clause}, Traits(), __FILE__, __LINE__, std::move(make));
}

void generate(ibv_qp_type type) {
  const std::string type_key = "ibv_modify_qp." + lower(type_name(type));
  for (const ibv_qp_state from : reachable) {
    for (const ibv_qp_state to : reachable) {
      const auto row = transition_of(type, from, to);
      if (!row) continue;
      const std::string key = type_key + '.' + lower(state_name(from)) + '-' + lower(state_name(to));
      const std::string name =
          camel(type_name(type)) + camel(state_name(from)) + "To" + camel(state_name(to));
      const Transition t = *row;
      add(name, key, [=]() -> testing::Test* { return new Required(type, t); });
      if (t.required != 0)
        add(name + "LeftOut", key + ".required", [=]() -> testing::Test* { return new LeftOut(type, t); });
      if (t.optional != 0)
        add(name + "Optional", key + ".optional", [=]() -> testing::Test* { return new Optional(type, t); });
      add(name + "Extra", key + ".extra", [=]() -> testing::Test* { return new Extra(type, t); });
    }
    add(camel(type_name(type)) + "NowhereElseFrom" + camel(state_name(from)),
        type_key + ".illegal-from-" + lower(state_name(from)),
        [=]() -> testing::Test* { return new Illegal(type, from); });
  }
  const std::string clause = type_key + ".reset-err";
  if (const auto id = ClauseId::find(clause))
    add(camel(type_name(type)) + "ResetToErr", clause,
        [=]() -> testing::Test* { return new ResetToError(type, *id); });
}

[[maybe_unused]] const bool generated = [] {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) generate(type);
  return true;
}();

}  // namespace
}  // namespace conformance
