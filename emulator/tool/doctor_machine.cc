// SPDX-License-Identifier: BSD-2-Clause
//
// The machine: libraries, the device file, limits, variables.
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>

#include "adapter/segment.h"
#include "fabric/installation.h"
#include "fabric/node.h"
#include "tool/elf_file.h"
#include "tool/environment.h"
#include "tool/finding.h"
#include "tool/rdma_libraries.h"

namespace verbena::tool {
namespace {

constexpr rlim_t kFewestDescriptors = 64;
constexpr rlim_t kManyDescriptors = 1024;
constexpr rlim_t kAddressSpaceOfOne = rlim_t{32} << 30;  // what an adapter reserves without a limit

void examine_provider(const std::string& library, const std::string& abi, Findings* findings) {
  Installation installation;
  std::string problem;
  if (find_installation(&installation, &problem) != 0) return;  // reported by examine_installation
  const std::string provider = provider_path(installation, abi);
  if (access(provider.c_str(), R_OK) == 0)
    findings->push_back({Verdict::kGood, provider, "the provider for this libibverbs", ""});
  else
    findings->push_back(
        {Verdict::kBad, library, "wants providers of ABI " + abi + ", and there is no " + provider,
         "install a newer Verbena, or put the libraries of rdma-core 28 to 64 first in LD_LIBRARY_PATH"});
}

void examine_new_adapter(Findings* findings) {
  OwnSegment segment;
  int error = segment.create(1, 0, 1);
  if (error == 0 && segment.allocate(1 << 20) == 0) error = ENOMEM;
  if (error == 0)
    findings->push_back({Verdict::kGood, "shared memory", "an adapter gets its segment (memfd_create)", ""});
  else
    findings->push_back({Verdict::kBad, "shared memory",
                         std::string("an adapter gets no segment: ") + std::strerror(error),
                         error == ENOSYS || error == EPERM || error == EACCES
                             ? "allow memfd_create(2) (seccomp profile, SELinux)"
                             : "raise ulimit -v and ulimit -f, or free memory"});
}

}  // namespace

void examine_installation(Findings* findings) {
  Installation installation;
  std::string problem;
  if (find_installation(&installation, &problem) == 0)
    findings->push_back({Verdict::kGood, installation.preload, "the boundary", ""});
  else
    findings->push_back({Verdict::kBad, "installation", problem, "install or build Verbena whole"});
}

void examine_rdma_libraries(Findings* findings) {
  std::string problem;
  const std::string verbs = locate_library("libibverbs.so.1", &problem);
  if (verbs.empty()) {
    findings->push_back({Verdict::kBad, "libibverbs.so.1", problem, "install libibverbs1 (rdma-core)"});
    return;
  }
  ElfFile elf;
  const int error = read_elf(verbs, &elf);
  const std::string abi = error == 0 ? provider_abi(elf) : "";
  if (abi.empty())
    findings->push_back({Verdict::kBad, verbs, "is a libibverbs that Verbena does not know (no provider ABI)",
                         "use an rdma-core from 28 to 64"});
  else
    findings->push_back({Verdict::kGood, verbs, "provider ABI " + abi + ", " + latest_version(elf), ""});
  if (!abi.empty()) examine_provider(verbs, abi, findings);
  const std::string manager = locate_library("librdmacm.so.1", &problem);
  if (manager.empty())
    findings->push_back({Verdict::kNote, "librdmacm.so.1",
                         "is not there; programs that use the connection manager will not start",
                         "install librdmacm1 if yours does"});
}

bool has_connection_manager() {
  std::string problem;
  return !locate_library("librdmacm.so.1", &problem).empty();
}

void examine_device_file(Findings* findings) {
  constexpr const char* kFile = "/dev/full";
  struct stat status;
  const bool there = stat(kFile, &status) == 0;
  const int fd = open(kFile, O_RDWR | O_CLOEXEC);
  const int error = errno;
  if (fd >= 0) close(fd);
  if (there && S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 7) && fd >= 0)
    findings->push_back({Verdict::kGood, kFile, "stands in for the device files", ""});
  else
    findings->push_back({Verdict::kBad, kFile,
                         !there   ? "is not there"
                         : fd < 0 ? std::string("cannot be opened: ") + std::strerror(error)
                                  : "is not the character device 1:7",
                         "mknod -m 666 /dev/full c 1 7, or give the container the usual /dev"});
}

void examine_limits(Findings* findings) {
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string descriptors = std::to_string(limit.rlim_cur);
  if (limit.rlim_cur < kFewestDescriptors)
    findings->push_back({Verdict::kBad, "RLIMIT_NOFILE",
                         descriptors + " descriptors are too few for an adapter", "ulimit -n 1024"});
  else if (limit.rlim_cur < kManyDescriptors)
    findings->push_back({Verdict::kNote, "RLIMIT_NOFILE",
                         descriptors + " descriptors: each peer process and completion channel takes some",
                         "ulimit -n 1024 when there are many"});
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 4 * kAddressSpaceOfOne)
    findings->push_back({Verdict::kNote, "RLIMIT_AS",
                         "the address space is limited, so adapters are smaller and few peers can be mapped",
                         "ulimit -v unlimited"});
  examine_new_adapter(findings);
}

void examine_environment(Findings* findings) {
  if (const std::string path = current_environment("SYSFS_PATH"); !path.empty())
    findings->push_back({Verdict::kBad, "SYSFS_PATH", "sends libibverbs to " + path + " instead of /sys",
                         "unset SYSFS_PATH"});
  if (current_environment(kNodeVariable).empty())
    findings->push_back(
        {Verdict::kNote, kNodeVariable,
         "is not set in this shell: a program that is started here as it is finds no device, and says "
         "\"Function not implemented\", \"No IB devices found\" or \"No RDMA devices were detected\"",
         "verbena run -- PROGRAM, or once for this shell: eval \"$(verbena env)\""});
}

}  // namespace verbena::tool
