// SPDX-License-Identifier: BSD-2-Clause
#include "suite/provenance.h"

#include <sys/utsname.h>

#include <fstream>
#include <string>

#include "revision.inc"  // made by cmake/Revision.cmake

namespace conformance {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "model name" on x86; on other machines /proc/cpuinfo has no such line, and the device tree may name the
// machine.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string model;
  size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    count += line.starts_with("processor");
    if (model.empty() && line.starts_with("model name")) model = line.substr(colon + 2);
  }
  return (model.empty() ? "unknown" : model) + ", " + std::to_string(count) + " processors";
}

// Readable without rights (Documentation/ABI/testing/sysfs-class-dmi, sysfs-firmware-devicetree).
std::string product() {
  const std::string dmi = "/sys/class/dmi/id/";
  std::string name = first_line(dmi + "sys_vendor") + " " + first_line(dmi + "product_name");
  if (name == " ") name = first_line("/sys/firmware/devicetree/base/model");
  while (!name.empty() && name.back() == '\0') name.pop_back();
  return name.empty() ? "unknown" : name;
}

}  // namespace

std::string clauses_hash() { return CONFORMANCE_CLAUSES_SHA256; }

Facts provenance(uint64_t seed) {
  utsname system = {};
  uname(&system);
  return {{"suite_version", CONFORMANCE_VERSION},
          {"suite_commit", CONFORMANCE_COMMIT},
          {"clauses_sha256", clauses_hash()},
          {"seed", std::to_string(seed)},
          {"kernel", std::string(system.sysname) + " " + system.release},
          {"kernel_build", system.version},
          {"machine", system.machine},
          {"processor", processor()},
          {"product", product()}};
}

}  // namespace conformance
