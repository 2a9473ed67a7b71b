// SPDX-License-Identifier: BSD-2-Clause
//
// A report as data: what report.json holds. It stands for itself; pages and comparisons are made of it, of
// this run's report as of one that another version of the suite wrote.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "suite/facts.h"
#include "suite/report.h"

namespace conformance {

struct Document {
  struct Clause {
    std::string id, chapter, level, promise, source, applies;
    std::vector<std::string> seen_in;
    Verdict verdict = Verdict::not_tested;
    std::vector<std::string> tests;
    std::string detail;
    std::string layer, layer_reason;  // of a deviation: where it was seen, and how that is known
    bool is_expected = false;         // a known deviation, with
    std::string reason, reason_source;
    size_t runs = 0, deviations = 0;  // of its tests, all rounds together; the runs in which one deviated
    bool is_flaky() const { return deviations > 0 && deviations < runs; }
  };
  struct Test {
    std::string name;
    Verdict verdict = Verdict::not_tested;
    long long milliseconds = 0;
    std::vector<std::string> clauses, deviating;  // those that this test saw deviate
    std::string detail;
    std::vector<std::string> calls;
    size_t runs = 1, failures = 0;
  };
  struct Chapter {
    std::string key, title;
  };

  std::string schema;
  Facts provenance, device;
  std::vector<Clause> clauses;  // in the order of the clauses files
  std::vector<Test> tests;
  std::vector<Chapter> chapters;
  std::vector<std::string> stale;  // expected deviations that did not occur although their tests ran
  Summary summary;
  std::string command, began;
  double seconds = 0;
  size_t rounds = 1;
  std::string stopped;  // why the run ended before all was done, or empty

  std::string name() const { return value_of(device, "name"); }
};

Document document_of(const Report& report);

// report.json, or what conformance/expectations/shrink makes of one. Throws std::runtime_error, in one line,
// for a file that is none, and for one of a schema that this version does not know.
Document read_document(const std::string& path);

std::string to_json(const Document& document);  // schema: docs/CONFORMANCE.md

}  // namespace conformance
