// SPDX-License-Identifier: BSD-2-Clause
//
// Signatures of reports, made and checked by ssh-keygen(1) -Y: REPORT.sig, namespace "verbs-conformance".
#pragma once

#include <string>

namespace conformance {

// Is there an ssh-keygen, and is this a key? Throws std::runtime_error if not: to be asked before a run.
void check_key(const std::string& key);

// Writes path.sig. Throws std::runtime_error.
void sign_file(const std::string& path, const std::string& key);

// True if path.sig is a signature of the file: by `identity`, whose key `signers` lists (ssh-keygen(1),
// ALLOWED SIGNERS), or, without `signers`, by anybody; then only that the file was not changed. Prints what
// ssh-keygen says. Throws std::runtime_error if it cannot be checked.
bool verify_file(const std::string& path, const std::string& signers, const std::string& identity);

}  // namespace conformance
