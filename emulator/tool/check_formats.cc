// SPDX-License-Identifier: BSD-2-Clause
#include "tool/check_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "observe/diagnostic.h"

namespace verbena::tool {
namespace {

using Json = nlohmann::json;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string place_of(const CheckFrame& frame) {
  if (!frame.file.empty() && frame.line != 0) return fmt::format("{}:{}", frame.file, frame.line);
  return fmt::format("{}+0x{:x}", base_name(frame.module), frame.offset);
}

std::string name_of(const CheckFrame& frame) { return frame.function.empty() ? "?" : frame.function; }

std::string number_of(const CheckFinding& finding) {
  std::string text;
  if (finding.objects > 1) text += fmt::format(" ({} such objects)", finding.objects);
  if (finding.processes > 1) text += fmt::format(" (in {} processes)", finding.processes);
  return text;
}

// What a finding says beside what was done.
struct Advice {
  std::string_view code;  // of observe/diagnostics.def; "": the finding is no refusal of the device
  std::string rule, source, remedy;
};

// As a sentence: the words of that table have neither a capital letter nor a full stop.
std::string sentence(std::string_view text) {
  std::string written(text);
  const std::string_view word = text.substr(0, text.find(' '));
  if (!word.empty() && std::ranges::all_of(word, [](char each) { return each >= 'a' && each <= 'z'; }))
    written[0] = static_cast<char>(written[0] - 'a' + 'A');
  return written + ".";
}

// Of a refused call: the words of its code, at which the line of the log ends.
Advice advice_of(const CheckFinding& finding) {
  const std::string_view what = finding.what;
  const size_t begin = what.rfind('[');
  if (begin != std::string_view::npos && what.ends_with(']'))
    if (const Diagnostic* const row = find_diagnostic(what.substr(begin + 1, what.size() - begin - 2));
        row != nullptr)
      return {row->code, sentence(row->rule), std::string(row->source), sentence(row->remedy)};
  const findings::Rule& rule = *finding.rule;
  return {"", std::string(rule.rule), std::string(rule.source), std::string(rule.remedy)};
}

Json frame_json(const CheckFrame& frame) {
  Json json = {{"function", frame.function}, {"module", frame.module}, {"offset", frame.offset}};
  if (!frame.file.empty()) json["file"] = frame.file;
  if (frame.line != 0) json["line"] = frame.line;
  return json;
}

Json location_of(const CheckFrame& frame) {
  Json location = {{"logicalLocations", {{{"name", name_of(frame)}, {"kind", "function"}}}}};
  if (!frame.file.empty()) {
    const std::string uri = frame.file[0] == '/' ? "file://" + frame.file : frame.file;
    location["physicalLocation"]["artifactLocation"]["uri"] = uri;
    if (frame.line != 0) location["physicalLocation"]["region"]["startLine"] = frame.line;
  }
  return location;
}

// Where the program itself was: the first frame with a source file.
const CheckFrame* own_frame(const CheckFinding& finding) {
  for (const CheckCall& call : finding.calls)
    for (const CheckFrame& frame : call.stack)
      if (!frame.file.empty()) return &frame;
  return nullptr;
}

Json result_of(const CheckFinding& finding) {
  const findings::Rule& rule = *finding.rule;
  Json result = {
      {"ruleId", rule.id},
      {"level", findings::name_of(rule.level)},
      {"message", {{"text", finding.what + number_of(finding) + ". " + advice_of(finding).remedy}}},
      {"stacks", Json::array()}};
  for (const CheckCall& call : finding.calls) {
    Json frames = Json::array();
    for (const CheckFrame& frame : call.stack) frames.push_back({{"location", location_of(frame)}});
    result["stacks"].push_back({{"message", {{"text", call.what}}}, {"frames", frames}});
  }
  if (const CheckFrame* const frame = own_frame(finding); frame != nullptr)
    result["locations"] = Json::array({location_of(*frame)});
  return result;
}

}  // namespace

std::string text_of(const CheckFinding& finding) {
  const findings::Rule& rule = *finding.rule;
  std::string text = fmt::format("verbena check: {}[{}]: {}: {} [{}]\n", base_name(finding.program),
                                 finding.pid, findings::name_of(rule.level), rule.title, rule.id);
  const Advice advice = advice_of(finding);
  text +=
      fmt::format("  {}{}\n  Rule: {} ({})\n", finding.what, number_of(finding), advice.rule, advice.source);
  for (const CheckCall& call : finding.calls) {
    text += "  " + call.what + ":\n";
    unsigned number = 0;
    for (const CheckFrame& frame : call.stack)
      text += fmt::format("    #{} {} ({})\n", number++, name_of(frame), place_of(frame));
  }
  return text + fmt::format("  To do: {}\n", advice.remedy);
}

std::string json_of(const std::vector<CheckFinding>& findings) {
  Json list = Json::array();
  for (const CheckFinding& finding : findings) {
    const findings::Rule& rule = *finding.rule;
    Json calls = Json::array();
    for (const CheckCall& call : finding.calls) {
      Json stack = Json::array();
      for (const CheckFrame& frame : call.stack) stack.push_back(frame_json(frame));
      calls.push_back({{"what", call.what}, {"stack", stack}});
    }
    const Advice advice = advice_of(finding);
    list.push_back({{"rule", rule.id},
                    {"level", findings::name_of(rule.level)},
                    {"group", rule.group},
                    {"title", rule.title},
                    {"text", advice.rule},
                    {"source", advice.source},
                    {"remedy", advice.remedy},
                    {"what", finding.what},
                    {"pid", finding.pid},
                    {"program", finding.program},
                    {"objects", finding.objects},
                    {"processes", finding.processes},
                    {"calls", calls}});
    if (!advice.code.empty()) list.back()["code"] = advice.code;
  }
  return Json({{"version", 1}, {"findings", list}}).dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::string sarif_of(const std::vector<CheckFinding>& findings) {
  Json rules = Json::array(), results = Json::array();
  std::set<const findings::Rule*> described;
  for (const CheckFinding& finding : findings) {
    const findings::Rule& rule = *finding.rule;
    if (described.insert(&rule).second)
      rules.push_back({{"id", rule.id},
                       {"shortDescription", {{"text", rule.title}}},
                       {"fullDescription", {{"text", rule.rule}}},
                       {"help", {{"text", std::string(rule.remedy) + " (" + std::string(rule.source) + ")"}}},
                       {"defaultConfiguration", {{"level", findings::name_of(rule.level)}}}});
    results.push_back(result_of(finding));
  }
  const Json driver = {{"name", "verbena check"}, {"version", VERBENA_VERSION}, {"rules", rules}};
  const Json run = {{"tool", {{"driver", driver}}}, {"results", results}};
  const Json log = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                    {"version", "2.1.0"},
                    {"runs", Json::array({run})}};
  return log.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string list_of_rules() {
  std::string text;
  std::string_view group;
  for (const findings::Rule& rule : findings::kRules) {
    if (rule.group != group) text += fmt::format("{}{}\n", group.empty() ? "" : "\n", rule.group);
    group = rule.group;
    text += fmt::format("  {} ({}{})\n      {}.\n      {} ({})\n      e.g. {}\n", rule.id,
                        findings::name_of(rule.level), rule.by_default ? "" : ", with --enable only",
                        rule.title, rule.rule, rule.source, rule.example);
  }
  return text;
}

}  // namespace verbena::tool
