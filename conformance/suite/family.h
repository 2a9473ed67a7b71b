// SPDX-License-Identifier: BSD-2-Clause
//
// Families of clauses that need one capability: multicast, atomics, XRC, ... A device that claims one which
// does not work at all would deviate from every clause of it. So a test of the chapter "family" asks first
// whether it works at all. If that test deviates, this is the deviation, and the tests that need the family
// are not run: NOT TESTED. A run in which that test is not selected asks nobody.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "suite/registry.h"
#include "suite/verdict.h"

namespace conformance {

struct Family {
  std::string_view name;    // for a reader
  std::string_view clause;  // does it work at all?
  // Of a clause's `applies`: it needs the family. None: tests ask for it themselves, by need_family().
  std::span<const std::string_view> words;
};

// A family that others need stands before them.
std::span<const Family> families();

// The families that the clauses of the test need. The clause of a family does not need that one.
std::vector<const Family*> needed_by(const TestInfo& test);

// Those whose clauses it has.
std::vector<const Family*> asked_by(const TestInfo& test);

// The families of which this result says that they do not work at all.
std::vector<const Family*> broken_by(const TestInfo& test, const TestResult& result);

// Those that do not work at all, and what says so: clause and test.
using BrokenFamilies = std::map<const Family*, std::string>;
std::string why_not_run(const Family& family, const std::string& cause);
void use_broken_families(const BrokenFamilies& broken);  // in this process; they must outlive it

// Within a test: what follows needs the family of this clause, though not all that the test's clauses apply
// to does. Throws NotTested if the run has found that the family does not work at all.
void need_family(std::string_view clause);
// The same, for a test that can do without.
bool is_working(std::string_view family_clause);

}  // namespace conformance
