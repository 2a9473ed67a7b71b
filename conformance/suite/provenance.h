// SPDX-License-Identifier: BSD-2-Clause
//
// Where a report comes from: the suite and the machine. What concerns the device is in support/stack.h.
#pragma once

#include <cstdint>

#include "suite/facts.h"

namespace conformance {

// suite_version, suite_commit, clauses_sha256, seed, kernel, machine, processor, product. No name of the
// host, and nothing of its user: a report is for publication.
Facts provenance(uint64_t seed);

// The hash over the clauses of this program.
std::string clauses_hash();

}  // namespace conformance
