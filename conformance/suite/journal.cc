// SPDX-License-Identifier: BSD-2-Clause
#include "suite/journal.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "suite/facts_json.h"
#include "suite/provenance.h"

namespace conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* journal_schema = "verbs-conformance-journal/1";
constexpr auto sync_interval = std::chrono::seconds(1);  // a crash of the kernel loses at most so much

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

TestResult result_in(const Json& json, const TestInfo& test) {
  TestResult out;
  out.end = static_cast<TestResult::End>(std::min(json.at("end").get<unsigned>(), 3u));
  out.how = json.at("how").get<std::string>();
  out.calls = json.at("calls").get<std::vector<std::string>>();
  out.time = std::chrono::milliseconds(json.at("milliseconds").get<int64_t>());
  for (const Json& one : json.at("findings")) {
    const std::string kind = one.at(0).get<std::string>(), about = one.at(1).get<std::string>();
    if (kind.size() != 1 || std::string("DCNO").find(kind) == std::string::npos)
      throw std::runtime_error("a finding");
    const auto clause = ClauseId::find(about);
    if (!about.empty() && !clause) throw std::runtime_error("a clause");
    out.findings.push_back({static_cast<Finding::Kind>(kind[0]), clause, one.at(2).get<std::string>()});
  }
  count_run(out, test.clauses);
  return out;
}

const TestInfo* find_test(const std::string& name) {
  for (const TestInfo& test : tests())
    if (test.full_name() == name) return &test;
  return nullptr;
}

RunHeader header_in(const Json& json, const std::string& path) {
  if (json.value("schema", "") != journal_schema)
    throw std::runtime_error(path + " is a journal of another version of verbs-conformance: " +
                             json.value("schema", "it names no schema"));
  RunHeader out{facts_in(json.at("provenance")), facts_in(json.at("device")),
                json.at("command").get<std::string>(), json.at("began").get<std::string>(),
                json.at("expectations").get<std::string>()};
  if (value_of(out.provenance, "clauses_sha256") != clauses_hash())
    throw std::runtime_error(path + " was written by a verbs-conformance with other clauses, of commit " +
                             value_of(out.provenance, "suite_commit") + ": render it with that one");
  return out;
}

}  // namespace

Journal::Journal(const std::string& directory, const RunHeader& header,
                 const std::vector<const TestInfo*>& selected)
    : path_((std::filesystem::path(directory) / "report.journal").string()) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw std::runtime_error("cannot make " + directory + ": " + error.message());
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw std::runtime_error("cannot write " + path_ + ": " + strerror(errno));
  Json begin = {{"schema", journal_schema},
                {"provenance", object_of(header.provenance)},
                {"device", object_of(header.device)},
                {"command", header.command},
                {"began", header.began},
                {"expectations", header.expectations},
                {"selected", Json::array()}};
  for (const TestInfo* test : selected) begin["selected"].push_back(test->full_name());
  write(line_of(begin));
  if (!error_.empty()) throw std::runtime_error(error_);
}

Journal::~Journal() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Journal::write(const std::string& line) {
  if (!error_.empty()) return;
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = ::write(descriptor_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      error_ = "cannot write " + path_ + ": " + strerror(errno);
      return;
    }
    done += static_cast<size_t>(count);
  }
}

void Journal::add(const TestInfo& test, const TestResult& result) {
  Json line = {{"test", test.full_name()},  {"end", static_cast<unsigned>(result.end)},
               {"how", result.how},         {"milliseconds", result.time.count()},
               {"findings", Json::array()}, {"calls", Json::array()}};
  for (const Finding& finding : result.findings)
    line["findings"].push_back({std::string(1, static_cast<char>(finding.kind)),
                                finding.about ? std::string(finding.about->clause().id) : "", finding.text});
  if (verdict_of(result) == Verdict::deviates) line["calls"] = result.calls;
  write(line_of(line));
  const auto now = std::chrono::steady_clock::now();
  if (now - synced_ < sync_interval) return;
  fdatasync(descriptor_);
  synced_ = now;
}

void Journal::remove() { unlink(path_.c_str()); }

bool is_journal(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const Json json = Json::parse(line, nullptr, false);
  return json.is_object() && json.value("schema", "").starts_with("verbs-conformance-journal/");
}

JournalContents read_journal(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": " + strerror(errno));
  JournalContents out;
  std::map<std::string, size_t> index;
  try {
    std::string line;
    std::getline(file, line);
    const Json begin = Json::parse(line);
    out.header = header_in(begin, path);
    for (const Json& name : begin.at("selected")) {
      const TestInfo* test = find_test(name.get<std::string>());
      if (test == nullptr)
        throw std::runtime_error(path + " has a test that this version lacks: " + name.dump());
      index[test->full_name()] = out.selected.size();
      out.selected.push_back(test);
    }
    out.results.tests.resize(out.selected.size());
    for (TestResult& result : out.results.tests) result.runs = 0;
    while (std::getline(file, line)) {
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_discarded()) break;
      const auto found = index.find(json.at("test").get<std::string>());
      if (found == index.end()) throw std::runtime_error("a test that was not selected");
      const TestInfo& test = *out.selected[found->second];
      TestResult& to = out.results.tests[found->second];
      TestResult result = result_in(json, test);
      out.seconds += static_cast<double>(result.time.count()) / 1000.0;
      if (to.runs == 0)
        to = std::move(result);
      else
        add_run(to, std::move(result), test.clauses);
    }
  } catch (const Json::exception& error) {
    throw std::runtime_error(path + " is no journal of verbs-conformance: " + error.what());
  }
  out.results.stopped = "the run ended before it was done";
  for (TestResult& result : out.results.tests)
    if (result.runs == 0) result.how = "not run: " + out.results.stopped;
  return out;
}

}  // namespace conformance
