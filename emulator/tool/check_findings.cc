// SPDX-License-Identifier: BSD-2-Clause
#include "tool/check_findings.h"

#include <nlohmann/json.hpp>

namespace verbena::tool {
namespace {

using Json = nlohmann::json;

CheckCall read_call(const Json& from) {
  CheckCall call{from.at("what").get<std::string>(), {}};
  for (const Json& each : from.at("stack"))
    call.stack.push_back({each.at("module").get<std::string>(), each.at("offset").get<uint64_t>(),
                          each.at("symbol").get<std::string>(), "", 0});
  return call;
}

}  // namespace

std::string identity_of(const CheckFinding& finding) {
  std::string identity(finding.rule->id);
  if (finding.calls.empty()) return identity + " " + finding.what;
  for (const CheckFrame& frame : finding.calls.front().stack)
    identity += " " + frame.module + "+" + std::to_string(frame.offset);
  return identity;
}

void FindingReader::take(std::string_view bytes) {
  rest_ += bytes;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
    take_line(rest_.substr(begin, end - begin));
  rest_.erase(0, begin);
}

void FindingReader::take_line(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  try {
    const int pid = json.at("pid").get<int>();
    if (json.contains("device")) {
      saw_device_ = true;
      return;
    }
    if (json.contains("retract")) {
      leaks_.erase({pid, json.at("retract").get<uint64_t>()});
      return;
    }
    CheckFinding finding;
    finding.pid = pid;
    finding.rule = findings::find_rule(json.at("rule").get<std::string>());
    finding.program = json.at("program").get<std::string>();
    finding.what = json.at("what").get<std::string>();
    if (json.contains("calls"))
      for (const Json& call : json.at("calls")) finding.calls.push_back(read_call(call));
    if (finding.rule == nullptr) return;
    if (json.contains("leak"))
      leaks_[{pid, json.at("leak").get<uint64_t>()}] = std::move(finding);
    else
      add(std::move(finding));
  } catch (const Json::exception&) {  // another program has written to the file
  }
}

void FindingReader::add(CheckFinding finding) {
  if (seen_.insert(identity_of(finding)).second) fresh_.push_back(std::move(finding));
}

void FindingReader::end() {
  struct Place {
    CheckFinding first;
    int last_pid;
  };
  std::map<std::string, Place> by_place;
  for (auto& [key, leak] : leaks_) {  // all of one process, then all of the next
    const auto [found, is_new] = by_place.try_emplace(identity_of(leak), Place{leak, leak.pid});
    Place& place = found->second;
    if (is_new) continue;
    if (place.first.pid == leak.pid) ++place.first.objects;
    if (place.last_pid != leak.pid) ++place.first.processes;
    place.last_pid = leak.pid;
  }
  leaks_.clear();
  for (auto& [identity, place] : by_place) add(std::move(place.first));
}

std::vector<CheckFinding> FindingReader::collect() { return std::exchange(fresh_, {}); }

}  // namespace verbena::tool
