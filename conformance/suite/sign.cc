// SPDX-License-Identifier: BSD-2-Clause
#include "suite/sign.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

namespace conformance {
namespace {

constexpr const char* name_space = "verbs-conformance";

// The program's exit status. `input`: a file for its standard input, or empty. ssh-keygen asks for the
// passphrase of a key on the terminal.
int run(const std::vector<std::string>& command, const std::string& input, bool is_quiet) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));  // execvp(3)
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(std::string("fork: ") + strerror(errno));
  if (pid == 0) {
    const int from = open(input.empty() ? "/dev/null" : input.c_str(), O_RDONLY);
    if (from < 0) _exit(126);
    dup2(from, STDIN_FILENO);
    if (is_quiet) {
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
    }
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 125;
  if (code == 127) throw std::runtime_error("no ssh-keygen: signatures need OpenSSH's client (8.2 or newer)");
  return code;
}

}  // namespace

void check_key(const std::string& key) {
  if (run({"ssh-keygen", "-l", "-f", key}, {}, true) != 0)
    throw std::runtime_error("--sign: " + key + " is no key of ssh-keygen, or cannot be read");
}

void sign_file(const std::string& path, const std::string& key) {
  unlink((path + ".sig").c_str());  // ssh-keygen would ask whether to overwrite it
  if (run({"ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", name_space, path}, {}, false) != 0)
    throw std::runtime_error("ssh-keygen did not sign " + path + " with " + key);
}

bool verify_file(const std::string& path, const std::string& signers, const std::string& identity) {
  const std::string signature = path + ".sig";
  for (const std::string& file : {path, signature, signers})
    if (!file.empty() && access(file.c_str(), R_OK) != 0)
      throw std::runtime_error("cannot read " + file + ": " + strerror(errno));
  if (signers.empty())
    return run({"ssh-keygen", "-Y", "check-novalidate", "-n", name_space, "-s", signature}, path, false) == 0;
  return run({"ssh-keygen", "-Y", "verify", "-f", signers, "-I", identity, "-n", name_space, "-s", signature},
             path, false) == 0;
}

}  // namespace conformance
