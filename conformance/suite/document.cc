// SPDX-License-Identifier: BSD-2-Clause
#include "suite/document.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "suite/facts_json.h"
#include "suite/layer.h"

namespace conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* document_schema = "verbs-conformance/2";
// Version 1 has no provenance, no layers and no rounds; verdicts are what shrink leaves.
constexpr const char* readable[] = {document_schema, "verbs-conformance/1", "verbs-conformance-verdicts/1"};

struct Count {
  const char* key;
  size_t Summary::*field;
};
constexpr Count counts[] = {{"clauses", &Summary::clauses},
                            {"conforms", &Summary::conforms},
                            {"deviates", &Summary::deviates},
                            {"not_claimed", &Summary::not_claimed},
                            {"not_tested", &Summary::not_tested},
                            {"pending", &Summary::pending},
                            {"untestable", &Summary::untestable},
                            {"expected_deviations", &Summary::expected},
                            {"unexpected_deviations", &Summary::unexpected},
                            {"tests", &Summary::tests}};

Json clause_of(const Document::Clause& clause, bool has_rounds) {
  Json out = {{"id", clause.id},
              {"chapter", clause.chapter},
              {"level", clause.level},
              {"promise", clause.promise},
              {"source", clause.source},
              {"applies", clause.applies},
              {"seen_in", clause.seen_in},
              {"verdict", name_of(clause.verdict)},
              {"tests", clause.tests},
              {"detail", clause.detail}};
  if (clause.verdict == Verdict::deviates)
    out["layer"] = {{"name", clause.layer}, {"reason", clause.layer_reason}};
  if (clause.is_expected) out["expected"] = {{"reason", clause.reason}, {"source", clause.reason_source}};
  if (has_rounds) out["runs"] = clause.runs, out["deviations"] = clause.deviations;
  return out;
}

Json test_of(const Document::Test& test, bool has_rounds) {
  Json out = {{"name", test.name},
              {"verdict", name_of(test.verdict)},
              {"milliseconds", test.milliseconds},
              {"clauses", test.clauses},
              {"detail", test.detail}};
  if (test.verdict == Verdict::deviates) out["deviating"] = test.deviating, out["calls"] = test.calls;
  if (has_rounds) out["runs"] = test.runs, out["failures"] = test.failures;
  return out;
}

Verdict verdict_in(const Json& json) {
  const auto verdict = verdict_named(json.at("verdict").get<std::string>());
  if (!verdict) throw std::runtime_error("an unknown verdict");
  return *verdict;
}

using Strings = std::vector<std::string>;

Document::Clause read_clause(const Json& json) {
  Document::Clause out;
  out.id = json.at("id").get<std::string>();
  // A reduced report has no promises: the clauses of this program have them.
  const auto known = ClauseId::find(out.id);
  const auto text = [&](const char* key, std::string_view of_known) {
    return json.value(key, known ? std::string(of_known) : std::string());
  };
  const conformance::Clause none = {};
  const conformance::Clause& clause = known ? known->clause() : none;
  out.chapter = text("chapter", clause.chapter);
  out.level = text("level", known ? name_of(clause.level) : "");
  out.promise = text("promise", clause.promise);
  out.source = text("source", clause.source);
  out.applies = text("applies", clause.applies);
  out.seen_in = json.value("seen_in", Strings(clause.seen_in.begin(), clause.seen_in.end()));
  out.verdict = verdict_in(json);
  out.tests = json.value("tests", Strings());
  out.detail = json.value("detail", "");
  if (const auto layer = json.find("layer"); layer != json.end()) {
    out.layer = layer->value("name", "");
    out.layer_reason = layer->value("reason", "");
  }
  if (const auto expected = json.find("expected"); expected != json.end()) {
    out.is_expected = true;
    out.reason = expected->value("reason", "");
    out.reason_source = expected->value("source", "");
  }
  out.runs = json.value("runs", size_t{1});
  out.deviations = json.value("deviations", size_t{out.verdict == Verdict::deviates});
  return out;
}

Document::Test read_test(const Json& json) {
  Document::Test out;
  out.name = json.at("name").get<std::string>();
  out.verdict = verdict_in(json);
  out.milliseconds = json.value("milliseconds", 0LL);
  out.clauses = json.value("clauses", Strings());
  out.detail = json.value("detail", "");
  out.calls = json.value("calls", Strings());
  out.deviating = json.value("deviating", out.verdict == Verdict::deviates ? out.clauses : Strings());
  out.runs = json.value("runs", size_t{1});
  out.failures = json.value("failures", size_t{out.verdict == Verdict::deviates});
  return out;
}

Document parse(const Json& json) {
  Document out;
  out.schema = json.value("schema", "");
  if (std::find(std::begin(readable), std::end(readable), out.schema) == std::end(readable))
    throw std::runtime_error(out.schema.empty()
                                 ? "it names no schema"
                                 : "its schema is " + out.schema + ", and this version reads " +
                                       document_schema + " and older ones");
  out.provenance = facts_in(json.value("provenance", Json::object()));
  out.device = facts_in(json.value("device", Json::object()));
  for (const Json& clause : json.at("clauses")) out.clauses.push_back(read_clause(clause));
  for (const Json& test : json.value("tests", Json::array())) out.tests.push_back(read_test(test));
  for (const Json& chapter : json.value("chapters", Json::array()))
    out.chapters.push_back({chapter.at("key").get<std::string>(), chapter.at("title").get<std::string>()});
  if (out.chapters.empty())
    for (const Chapter& chapter : chapters())
      out.chapters.push_back({std::string(chapter.key), std::string(chapter.title)});
  out.stale = json.value("stale_expectations", Strings());
  const Json summary = json.value("summary", Json::object());
  for (const Count& count : counts) out.summary.*count.field = summary.value(count.key, size_t{0});
  const Json run = json.value("run", Json::object());
  out.command = run.value("command", "");
  out.began = run.value("began", "");
  out.seconds = run.value("seconds", 0.0);
  out.rounds = run.value("rounds", size_t{1});
  out.stopped = run.value("stopped", "");
  return out;
}

// The runs of a clause: those of its tests that ran.
void count_runs(Document::Clause& out, ClauseId id, const Report& report) {
  for (const TestReport& test : report.tests) {
    const auto& about = test.test->clauses;
    if (std::find(about.begin(), about.end(), id) == about.end()) continue;
    out.runs += test.result.runs;
    const auto found = test.result.deviations.find(id.index());
    if (found != test.result.deviations.end()) out.deviations += found->second;
  }
}

Document::Clause clause_of(const ClauseReport& report, const Report& all) {
  const Clause& clause = report.id.clause();
  Document::Clause out;
  out.id = clause.id;
  out.chapter = clause.chapter;
  out.level = name_of(clause.level);
  out.promise = clause.promise;
  out.source = clause.source;
  out.applies = clause.applies;
  out.seen_in.assign(clause.seen_in.begin(), clause.seen_in.end());
  out.verdict = report.verdict;
  out.tests = report.tests;
  out.detail = report.detail;
  count_runs(out, report.id, all);
  if (report.verdict == Verdict::deviates) {
    const Attribution blamed = attribution_of(report, all.provenance);
    out.layer = blamed.layer;
    out.layer_reason = blamed.reason;
  }
  if (report.expectation == nullptr) return out;
  out.is_expected = true;
  out.reason = report.expectation->reason;
  out.reason_source = report.expectation->source;
  return out;
}

Document::Test test_of(const TestReport& report) {
  Document::Test out;
  out.name = report.test->full_name();
  out.verdict = report.verdict;
  out.milliseconds = report.result.time.count();
  out.detail = detail_of(report.result, std::nullopt);
  for (const ClauseId id : report.test->clauses) {
    out.clauses.emplace_back(id.clause().id);
    if (verdict_of(report.result, id) == Verdict::deviates) out.deviating.emplace_back(id.clause().id);
  }
  if (report.verdict == Verdict::deviates) out.calls = report.result.calls;
  out.runs = report.result.runs;
  out.failures = report.result.failures;
  return out;
}

}  // namespace

Document document_of(const Report& report) {
  Document out;
  out.schema = document_schema;
  out.provenance = report.provenance;
  out.device = report.device;
  for (const ClauseReport& clause : report.clauses) out.clauses.push_back(clause_of(clause, report));
  for (const TestReport& test : report.tests)
    if (test.result.runs > 0) out.tests.push_back(test_of(test));
  for (const Chapter& chapter : chapters())
    out.chapters.push_back({std::string(chapter.key), std::string(chapter.title)});
  out.stale = report.stale;
  out.summary = report.summary;
  out.command = report.command;
  out.began = report.began;
  out.seconds = report.seconds;
  out.rounds = report.rounds;
  out.stopped = report.stopped;
  return out;
}

Document read_document(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": " + strerror(errno));
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) throw std::runtime_error(path + " is no report of verbs-conformance");
  try {
    return parse(json);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + " is no report that can be read: " + error.what());
  }
}

std::string to_json(const Document& document) {
  const bool has_rounds = std::any_of(document.tests.begin(), document.tests.end(),
                                      [](const auto& test) { return test.runs > 1; });
  Json summary = Json::object();
  for (const Count& count : counts) summary[count.key] = document.summary.*count.field;
  Json out = {{"schema", document_schema},
              {"provenance", object_of(document.provenance)},
              {"device", object_of(document.device)},
              {"summary", summary},
              {"clauses", Json::array()}};
  for (const auto& clause : document.clauses) out["clauses"].push_back(clause_of(clause, has_rounds));
  out["tests"] = Json::array();
  for (const auto& test : document.tests) out["tests"].push_back(test_of(test, has_rounds));
  out["chapters"] = Json::array();
  for (const auto& [key, title] : document.chapters)
    out["chapters"].push_back({{"key", key}, {"title", title}});
  out["stale_expectations"] = document.stale;
  out["run"] = {{"command", document.command}, {"began", document.began}, {"seconds", document.seconds}};
  if (has_rounds) out["run"]["rounds"] = document.rounds;
  if (!document.stopped.empty()) out["run"]["stopped"] = document.stopped;
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace conformance
