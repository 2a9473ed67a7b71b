// SPDX-License-Identifier: BSD-2-Clause
//
// A random program on the device, held against the model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "random/program.h"
#include "suite/registry.h"
#include "suite/verdict.h"

namespace conformance::random {

// The test "random.NAME", which runs the program. Its clauses are those of the model.
TestInfo test_of(std::shared_ptr<const Program> program, const std::string& name);

// Registers tests for programs of the seeds `seed`, `seed` + 1, ...: before tests() is first asked for.
void register_programs(uint64_t seed, int count);
// A clause of the model that none of the programs reached is NOT TESTED.
void mark_unreached(std::vector<TestResult>& results);

// The program of a registered test, or null.
std::shared_ptr<const Program> program_of(const TestInfo& test);

}  // namespace conformance::random
