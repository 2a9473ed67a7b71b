// SPDX-License-Identifier: BSD-2-Clause
#include "suite/family.h"

#include <algorithm>
#include <string>

#include "suite/test.h"

namespace conformance {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::string_view uc[] = {"UC"}, ud[] = {"UD"}, xrc[] = {"XRC", "XRC_SEND", "XRC_RECV"},
                           srq[] = {"SRQ", "srq-resize"}, events[] = {"cq-events", "rsocket"},
                           in_line[] = {"inline"}, atomics[] = {"atomics"}, mw1[] = {"MW1"}, mw2[] = {"MW2"},
                           odp[] = {"ODP"}, dm[] = {"DM"}, cq_ex[] = {"CQ_EX"}, timestamp[] = {"timestamp"},
                           qp_ex[] = {"QP_EX"}, multicast[] = {"multicast"}, flow[] = {"flow"},
                           cm_tcp[] = {"cm-tcp", "rsocket"}, cm_udp[] = {"cm-udp"};

constexpr Family table[] = {
    {"INIT to ERR", "family.init-err", {}},  // need_family()
    {"UC", "family.uc", uc},
    {"UD", "family.ud", ud},
    {"SRQs", "family.srq", srq},
    {"XRC", "family.xrc", xrc},
    {"events of completion channels", "family.events", events},
    {"inline data", "family.inline", in_line},
    {"atomics", "family.atomics", atomics},
    {"memory windows of type 1", "family.mw1", mw1},
    {"memory windows of type 2", "family.mw2", mw2},
    {"on-demand paging", "family.odp", odp},
    {"device memory", "family.dm", dm},
    {"extended CQs", "family.cq-ex", cq_ex},
    {"timestamps of completions", "family.timestamp", timestamp},
    {"extended QPs", "family.qp-ex", qp_ex},
    {"multicast", "family.multicast", multicast},
    {"flow steering", "family.flow", flow},
    {"connections of the rdma_cm", "family.cm-tcp", cm_tcp},
    {"datagram services of the rdma_cm", "family.cm-udp", cm_udp},
};

const BrokenFamilies* broken_families = nullptr;

bool has(Words words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string_view> words_of(const Clause& clause) {
  std::vector<std::string_view> out;
  for (std::string_view rest = clause.applies; !rest.empty();) {
    const size_t comma = rest.find(", ");
    out.push_back(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
  return out;
}

bool needs(const Clause& clause, const Family& family) {
  const auto words = words_of(clause);
  return clause.id != family.clause &&
         std::any_of(words.begin(), words.end(), [&](auto word) { return has(family.words, word); });
}

}  // namespace

std::span<const Family> families() { return table; }

std::string why_not_run(const Family& family, const std::string& cause) {
  return std::string(family.name) + ": claimed, but does not work at all: " + cause;
}

std::vector<const Family*> needed_by(const TestInfo& test) {
  std::vector<const Family*> out;
  for (const Family& family : table)
    if (std::any_of(test.clauses.begin(), test.clauses.end(),
                    [&](ClauseId id) { return needs(id.clause(), family); }))
      out.push_back(&family);
  return out;
}

std::vector<const Family*> asked_by(const TestInfo& test) {
  std::vector<const Family*> out;
  for (const Family& family : table)
    if (std::any_of(test.clauses.begin(), test.clauses.end(),
                    [&](ClauseId id) { return id.clause().id == family.clause; }))
      out.push_back(&family);
  return out;
}

std::vector<const Family*> broken_by(const TestInfo& test, const TestResult& result) {
  std::vector<const Family*> out = asked_by(test);
  std::erase_if(out, [&](const Family* family) {
    const auto clause = ClauseId::find(family->clause);
    return !clause || verdict_of(result, *clause) != Verdict::deviates;
  });
  return out;
}

void use_broken_families(const BrokenFamilies& broken) { broken_families = &broken; }

void need_family(std::string_view clause) {
  if (broken_families == nullptr) return;
  for (const auto& [family, cause] : *broken_families)
    if (family->clause == clause) throw NotTested{why_not_run(*family, cause)};
}

bool is_working(std::string_view family_clause) {
  return broken_families == nullptr ||
         std::none_of(broken_families->begin(), broken_families->end(),
                      [&](const auto& broken) { return broken.first->clause == family_clause; });
}

}  // namespace conformance
