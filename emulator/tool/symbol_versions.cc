// SPDX-License-Identifier: BSD-2-Clause
#include "tool/symbol_versions.h"

#include <sstream>

namespace verbena::tool {
namespace {

// From rdma-core 28 on. Distributions that still have an older one are out of support.
constexpr struct {
  const char* version;
  int release;
} kIntroduced[] = {{"IBVERBS_1.8", 28},  {"IBVERBS_1.9", 30},  {"IBVERBS_1.10", 31}, {"IBVERBS_1.11", 32},
                   {"IBVERBS_1.12", 34}, {"IBVERBS_1.13", 35}, {"IBVERBS_1.14", 36}, {"IBVERBS_1.15", 59},
                   {"IBVERBS_1.16", 62}, {"IBVERBS_1.17", 64}, {"RDMACM_1.3", 31},   {"RDMACM_1.4", 60}};

std::string with_release(const std::string& version) {
  const int release = release_with(version);
  return release == 0 ? version : version + " (rdma-core " + std::to_string(release) + ")";
}

bool is_of_rdma_core(const std::string& version) {
  return version.rfind("IBVERBS_", 0) == 0 || version.rfind("RDMACM_", 0) == 0;
}

}  // namespace

std::vector<MissingVersion> missing_versions(const std::string& said_by_loader) {
  static const std::string kVersion = ": version `";
  static const std::string kNotFound = "' not found (required by ";
  std::vector<MissingVersion> found;
  std::istringstream lines(said_by_loader);
  for (std::string line; std::getline(lines, line);) {
    const size_t version = line.find(kVersion);
    const size_t not_found = line.find(kNotFound);
    if (version == std::string::npos || not_found == std::string::npos || not_found < version) continue;
    const std::string before = line.substr(0, version);  // "PROGRAM: LIBRARY"
    const size_t colon = before.rfind(": ");
    const size_t first = version + kVersion.size();
    const size_t file = not_found + kNotFound.size();
    const size_t end = line.rfind(')');
    if (end == std::string::npos || end <= file) continue;
    found.push_back({colon == std::string::npos ? before : before.substr(colon + 2),
                     line.substr(first, not_found - first), line.substr(file, end - file)});
  }
  return found;
}

int release_with(const std::string& version) {
  for (const auto& each : kIntroduced)
    if (version == each.version) return each.release;
  return 0;
}

std::string describe(const MissingVersion& missing, const std::string& newest) {
  return "needs the symbol version " + with_release(missing.version) + ", and " + missing.library +
         (newest.empty() ? " does not have it" : " has no newer one than " + with_release(newest)) +
         ", so that the loader refuses the program";
}

std::string remedy(const MissingVersion& missing) {
  const std::string rebuild = "build the program on this machine";
  if (!is_of_rdma_core(missing.version)) return rebuild + ", or use a build of it for this system";
  const int release = release_with(missing.version);
  return "put the libraries of rdma-core " +
         (release == 0 ? std::string("that the program was built with")
                       : std::to_string(release) + " or newer") +
         " first in LD_LIBRARY_PATH, or " + rebuild;
}

}  // namespace verbena::tool
