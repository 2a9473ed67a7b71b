// SPDX-License-Identifier: BSD-2-Clause
//
// Can a library be preloaded into the program? Not into a static one, which has no ld.so. Nor into one that
// runs with more rights than its user ("secure-execution mode", ld.so(8)): it ignores paths in LD_PRELOAD.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tool/elf_file.h"
#include "tool/environment.h"
#include "tool/finding.h"
#include "tool/interpreter.h"
#include "tool/symbol_versions.h"

namespace verbena::tool {
namespace {

constexpr int kDeepestScript = 4;  // BINPRM: how far the kernel follows "#!" lines

bool is_program(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Looks for the program as execvp(3). "": PATH has no such program.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  std::string path = current_environment("PATH");
  if (path.empty()) path = "/bin:/usr/bin";
  for (size_t from = 0; from <= path.size();) {
    const size_t to = std::min(path.find(':', from), path.size());
    const std::string folder = to > from ? path.substr(from, to - from) : ".";
    if (is_program(folder + "/" + name)) return folder + "/" + name;
    from = to + 1;
  }
  return "";
}

bool has_plain_rights(const std::string& path, Findings* findings) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return true;
  const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid();
  const bool other_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != getegid();
  const bool capabilities = getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && geteuid() != 0;
  if (!other_user && !other_group && !capabilities) return true;
  findings->push_back({Verdict::kBad, path,
                       std::string(capabilities ? "has file capabilities"
                                   : other_user ? "is set-user-ID"
                                                : "is set-group-ID") +
                           ", so that the loader ignores LD_PRELOAD",
                       "use a copy, which loses that: cp " + path + " COPY"});
  return false;
}

// `script`: whose interpreter it is; "": of none.
bool examine_elf(const std::string& path, const std::string& script, Findings* findings) {
  ElfFile self;
  ElfFile elf;
  if (const int error = read_elf(path, &elf); error != 0) {
    findings->push_back({Verdict::kBad, path,
                         error == ENOEXEC ? "is neither an ELF program nor a script with a #! line"
                                          : std::string("cannot be read: ") + std::strerror(error),
                         error == ENOEXEC                     ? "name the program that runs it"
                         : error == ENOENT && !script.empty() ? "install it, or mend the #! line of " + script
                                                              : "see to the file's permissions"});
    return false;
  }
  if (read_elf("/proc/self/exe", &self) != 0) return true;
  if (elf.elf_class != self.elf_class || elf.machine != self.machine || elf.data != self.data) {
    findings->push_back({Verdict::kBad, path,
                         "is for " + machine_word(elf.machine) +
                             (elf.elf_class == ELFCLASS32 ? ", 32 bits" : ", 64 bits") +
                             ", and Verbena's libraries are for " + machine_word(self.machine),
                         "use a program, or a build of Verbena, for the same architecture"});
    return false;
  }
  if (elf.interpreter.empty()) {
    findings->push_back({Verdict::kBad, path,
                         "is linked statically, so that nothing can be preloaded into it",
                         "link it dynamically, libibverbs included (without -static)"});
    return false;
  }
  if (elf.interpreter != self.interpreter) {
    const bool there = access(elf.interpreter.c_str(), X_OK) == 0;
    findings->push_back({Verdict::kBad, path,
                         "is loaded by " + elf.interpreter + (there ? "" : ", which is not there,") +
                             " and Verbena's libraries are for " + self.interpreter,
                         there ? "use a program built for this C library" : "install that loader"});
    return false;
  }
  return true;
}

constexpr int kListPatience = 5000;  // ms

// What the loader says that it would load for the program, which is not run, and what it misses (on stderr):
// ld.so(8), --list. "": unknown.
std::string list_libraries(const std::string& interpreter, const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  const std::string absolute = path.find('/') == std::string::npos ? "./" + path : path;
  char* const words[] = {const_cast<char*>(interpreter.c_str()), const_cast<char*>("--list"),
                         const_cast<char*>(absolute.c_str()), nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, interpreter.c_str(), &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  pollfd readable{ends[0], POLLIN, 0};
  bool ended = false;
  while (error == 0 && !ended && poll(&readable, 1, kListPatience) == 1) {
    char part[4096];
    const ssize_t got = read(ends[0], part, sizeof part);
    if (got <= 0)
      ended = true;
    else
      text.append(part, static_cast<size_t>(got));
  }
  close(ends[0]);
  if (error != 0) return "";
  if (!ended) kill(child, SIGKILL);
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "";
}

// The newest version of the library of the same kind as `version`, which is "KIND_...". The versions are
// defined in order, the newest last.
std::string newest_version(const std::string& library, const std::string& version) {
  const std::string kind = version.substr(0, version.find('_') + 1);
  ElfFile elf;
  if (kind.empty() || read_elf(library, &elf) != 0) return "";
  std::string newest;
  for (const std::string& each : elf.versions)
    if (each.rfind(kind, 0) == 0 && each.rfind(kind + "PRIVATE", 0) != 0) newest = each;
  return newest;
}

// False: the loader would refuse the program.
bool examine_versions(const std::string& said, Findings* findings) {
  const std::vector<MissingVersion> missing = missing_versions(said);
  for (const MissingVersion& each : missing)
    findings->push_back({Verdict::kBad, each.needed_by,
                         describe(each, newest_version(each.library, each.version)), remedy(each)});
  return missing.empty();
}

void examine_libraries(const std::string& path, Findings* findings) {
  ElfFile elf;
  if (read_elf(path, &elf) != 0) return;
  const std::string libraries = list_libraries(elf.interpreter, path);
  if (libraries.empty() || !examine_versions(libraries, findings)) return;
  for (const char* library : {"libibverbs.so", "librdmacm.so"})
    if (libraries.find(library) != std::string::npos)
      return findings->push_back({Verdict::kGood, path, std::string("uses ") + library, ""});
  findings->push_back(
      {Verdict::kNote, path,
       "uses no verbs: it is linked with neither libibverbs nor librdmacm, so that it sees no device "
       "unless it loads one of them while it runs (plugins, Python modules)",
       "name the program that uses them"});
}

}  // namespace

void examine_rights(const std::string& name, Findings* findings) {
  has_plain_rights(find_program(name), findings);
}

void examine_program(const std::string& name, Findings* findings) {
  std::string path = find_program(name);
  if (path.empty() || access(path.c_str(), F_OK) != 0) {
    findings->push_back({Verdict::kBad, name, "is not there", "see to the path, or install it"});
    return;
  }
  if (!is_program(path)) {
    findings->push_back(
        {Verdict::kBad, path, "cannot be executed", "chmod +x, or name the program that runs it"});
    return;
  }
  bool good = has_plain_rights(path, findings);
  const std::string named = path;
  std::string script;
  for (int depth = 0; depth < kDeepestScript; ++depth) {
    const std::string interpreter = script_interpreter(path);
    if (interpreter.empty()) break;
    findings->push_back(
        {Verdict::kNote, path, "is a script: what counts is each program that it starts", ""});
    script = std::exchange(path, interpreter);
  }
  good = examine_elf(path, script, findings) && good;
  if (!good) return;
  findings->push_back({Verdict::kGood, path, "a dynamic program that LD_PRELOAD reaches", ""});
  if (path == named) examine_libraries(path, findings);
}

}  // namespace verbena::tool
