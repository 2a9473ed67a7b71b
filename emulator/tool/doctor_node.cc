// SPDX-License-Identifier: BSD-2-Clause
//
// Tries all this on a node of the doctor's own:
// - a process joins the node with an adapter (descriptors, FIFOs, sockets, a thread);
// - a process that is neither its parent nor its child accesses its memory;
// - it dies, and its death is noticed;
// - a program finds and opens the device.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "adapter/segment.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/node_membership.h"
#include "fabric/node_removal.h"
#include "fabric/process_identity.h"
#include "fabric/segment_passing.h"
#include "fabric/slot_folder.h"
#include "tool/environment.h"
#include "tool/finding.h"
#include "wire/node_recipe.h"

namespace verbena::tool {
namespace {

constexpr int kPatience = 10;  // seconds, for each child

// A child process and a pipe from it. The destructor kills and reaps it.
class Child {
 public:
  // `body` runs in the child and returns its exit status. Its arguments are the writing end of the pipe, and
  // a descriptor that is at end of file as soon as the child may exit.
  template <typename Body>
  explicit Child(Body body) {
    int from[2];
    int stay[2];
    if (pipe2(from, O_CLOEXEC) != 0) return;
    if (pipe2(stay, O_CLOEXEC) != 0) {
      close(from[0]);
      close(from[1]);
      return;
    }
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(kPatience);
      close(stay[1]);
      _exit(body(from[1], stay[0]));
    }
    close(from[1]);
    close(stay[0]);
    from_ = from[0];
    stay_ = stay[1];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    end();
    if (from_ >= 0) close(from_);
  }

  // Lets the child exit, and waits for that; its alarm(2) bounds the wait. Returns the status of wait(2).
  int end() {
    if (stay_ >= 0) close(stay_);
    stay_ = -1;
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
    return status_;
  }

  template <typename T>
  bool receive(T* message) {
    return from_ >= 0 && read(from_, message, sizeof *message) == static_cast<ssize_t>(sizeof *message);
  }

  std::string receive_text() {
    std::string text;
    char buffer[512];
    ssize_t got;
    while (from_ >= 0 && text.size() < 4096 && (got = read(from_, buffer, sizeof buffer)) > 0)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
  int stay_ = -1;
  int status_ = -1;
};

template <typename T>
bool send(int fd, const T& message) {
  return write(fd, &message, sizeof message) == static_cast<ssize_t>(sizeof message);
}

constexpr uint64_t kSecret = 0x76657262656e6130;

struct Arrival {
  int error = 0;
  uint32_t slot = 0;
  uint32_t generation = 0;
  int32_t pid = 0;
  uint64_t node_id = 0;
  uint64_t secret_address = 0;
};

// The ways to reach another process: each is 0, or the errno.
struct Reach {
  int segment_passing = 0;
  int segment = 0;
  bool has_descriptor = false;
  int memory_descriptor = 0;
  int process_vm = 0;
};

int live(const std::string& node, int answer, int stay) {
  // Never destroyed: the process exits with the adapter open, as programs do.
  static auto* node_membership = new NodeMembership;
  static volatile uint64_t secret = kSecret;
  Arrival arrival;
  arrival.error = node_membership->enter(node, nullptr, nullptr);
  if (arrival.error == 0) {
    arrival.slot = node_membership->slot();
    arrival.generation = node_membership->generation();
    arrival.pid = getpid();
    arrival.node_id = node_membership->directory().header().node_id;
    arrival.secret_address = reinterpret_cast<uint64_t>(&secret);
  }
  send(answer, arrival);
  char byte;
  return read(stay, &byte, 1) == 0 ? 0 : 1;
}

int read_secret(ssize_t got, uint64_t value) {
  if (got < 0) return errno;
  return got == sizeof value && value == kSecret ? 0 : EIO;
}

int guard(const std::string& node, const Arrival& host, int answer) {
  Reach reach;
  PassedSegment passed;
  reach.segment_passing = ask_for_segment(slot_folder(node, host.slot, host.generation), 2000, &passed);
  if (reach.segment_passing == 0) {
    PeerSegment segment;
    reach.segment = segment.map(passed.segment_fd, host.node_id, host.slot, host.generation);
    reach.has_descriptor = passed.memory_fd >= 0;
    uint64_t value = 0;
    ssize_t got = pread(passed.memory_fd, &value, sizeof value, static_cast<off_t>(host.secret_address));
    reach.memory_descriptor = read_secret(got, value);
    value = 0;
    const iovec here{&value, sizeof value};
    const iovec there{reinterpret_cast<void*>(host.secret_address), sizeof value};
    got = process_vm_readv(host.pid, &here, 1, &there, 1, 0);
    reach.process_vm = read_secret(got, value);
  }
  return send(answer, reach) ? 0 : 1;
}

std::string ptrace_remedy() {
  std::ifstream yama("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (yama >> scope && scope >= 2)
    return "sysctl kernel.yama.ptrace_scope=1 (it is " + std::to_string(scope) + ")";
  return "in a container: --cap-add SYS_PTRACE, or a seccomp profile that allows process_vm_readv and "
         "_writev";
}

void judge_memory(const Reach& reach, Findings* findings) {
  const std::string where = "memory of another process";
  const auto word = [](int error) { return std::string(std::strerror(error)); };
  if (!reach.has_descriptor)
    findings->push_back({Verdict::kNote, where,
                         "no /proc/self/mem is handed over; process_vm_readv: " +
                             (reach.process_vm == 0 ? "allowed" : word(reach.process_vm)) +
                             ": messages between processes go over sockets, and are slower",
                         "mount /proc, and leave processes dumpable (prctl PR_SET_DUMPABLE)"});
  else if (reach.memory_descriptor != 0 && reach.process_vm != 0)
    findings->push_back({Verdict::kBad, where,
                         "out of reach: /proc/self/mem handed over: " + word(reach.memory_descriptor) +
                             "; process_vm_readv: " + word(reach.process_vm),
                         ptrace_remedy()});
  else if (reach.process_vm != 0)
    findings->push_back(
        {Verdict::kNote, where,
         "process_vm_readv is refused (" + word(reach.process_vm) + "): long messages are slower",
         ptrace_remedy()});
  else if (reach.memory_descriptor != 0)
    findings->push_back(
        {Verdict::kNote, where,
         "no /proc/self/mem (" + word(reach.memory_descriptor) + "): short messages are slower",
         "mount /proc, and leave processes dumpable (prctl PR_SET_DUMPABLE)"});
  else
    findings->push_back({Verdict::kGood, where, "can be read and written by a process of the same user", ""});
}

void judge_reach(const Reach& reach, Findings* findings) {
  if (reach.segment_passing != 0 || reach.segment != 0) {
    findings->push_back({Verdict::kBad, "passing of an adapter",
                         std::string("fails: ") + std::strerror(reach.segment_passing + reach.segment),
                         "keep the node on a local file system, and processes in one user namespace"});
    return;
  }
  judge_memory(reach, findings);
}

void examine_life(const std::string& node, Findings* findings) {
  Child host([&](int answer, int stay) { return live(node, answer, stay); });
  Arrival arrival;
  if (!host.receive(&arrival)) arrival.error = ETIMEDOUT;
  if (arrival.error != 0) {
    findings->push_back({Verdict::kBad, node,
                         std::string("an adapter cannot live there: ") + std::strerror(arrival.error),
                         "set XDG_RUNTIME_DIR or TMPDIR to a folder on a local file system"});
    return;
  }
  findings->push_back({Verdict::kGood, nodes_folder(), "an adapter can live there", ""});
  Child guest([&](int answer, int) { return guard(node, arrival, answer); });
  Reach reach;
  if (guest.receive(&reach))
    judge_reach(reach, findings);
  else
    findings->push_back({Verdict::kBad, "passing of an adapter", "no answer", ""});
  host.end();
  NodeDirectory directory;
  if (directory.open(directory_path(node).c_str()) == 0 && directory.occupied(arrival.slot))
    findings->push_back({Verdict::kBad, "robust locks",
                         "the kernel does not tell that the holder of one has died",
                         "use a kernel with robust futexes (set_robust_list(2))"});
  else
    findings->push_back({Verdict::kGood, "robust locks", "a process that died is missed", ""});
}

// Executes `verbena probe`. `what`: its argument, or "".
int become_probe(const std::vector<Variable>& environment, const std::string& what, int answer) {
  dup2(answer, STDOUT_FILENO);
  dup2(answer, STDERR_FILENO);
  for (const Variable& variable : environment) setenv(variable.name.c_str(), variable.value.c_str(), 1);
  char self[] = "/proc/self/exe";
  char probe[] = "probe";
  std::string more = what;
  char* arguments[] = {self, probe, what.empty() ? nullptr : more.data(), nullptr};
  execv(self, arguments);
  return errno;
}

// Runs `verbena probe` as under `verbena run`. True: it succeeded. *said: its output.
bool send_probe(const std::string& node, const Installation& installation, const std::string& what,
                std::string* said) {
  const std::vector<Variable> environment = program_environment(
      installation, node, wire::write_recipe({}, ""), sanitizer_runtimes(installation), current_environment);
  Child program([&](int answer, int) { return become_probe(environment, what, answer); });
  *said = program.receive_text();
  while (!said->empty() && said->back() == '\n') said->pop_back();
  for (char& c : *said)
    if (c == '\n') c = ';';
  const int status = program.end();
  if (said->empty()) *said = "it says nothing";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The remedy for a program that does not find its device, by its output and the other findings.
std::string remedy_of_way(const std::string& said, const Findings& findings) {
  // provider/rdma_core/layout.cc
  if (said.find("this libibverbs is ") != std::string::npos)
    return "use an rdma-core from 28 to 64, or a Verbena that knows this one";
  const std::string more = "VERBENA_LOG=info IBV_SHOW_WARNINGS=1 verbena run -- ibv_devinfo says more";
  const bool known = std::any_of(findings.begin(), findings.end(),
                                 [](const Finding& finding) { return finding.verdict == Verdict::kBad; });
  return known ? "see to what is BAD above; then " + more : more;
}

void examine_way(const std::string& node, Findings* findings) {
  Installation installation;
  std::string problem;
  if (find_installation(&installation, &problem) != 0) return;  // reported by examine_installation
  std::string said;
  if (!send_probe(node, installation, "", &said)) {
    findings->push_back(
        {Verdict::kBad, "a program", "does not get to the device: " + said, remedy_of_way(said, *findings)});
    return;
  }
  findings->push_back({Verdict::kGood, "a program", said, ""});
  if (!has_connection_manager()) return;  // reported by examine_rdma_libraries
  if (send_probe(node, installation, "rdma_cm", &said))
    findings->push_back({Verdict::kGood, "rdma_cm", said, ""});
  else
    findings->push_back(
        {Verdict::kBad, "rdma_cm", "does not work: " + said,
         "VERBENA_LOG=info verbena run -- rping -s says more; without rdma_cm, programs that are "
         "given addresses by hand work all the same"});
}

}  // namespace

void examine_node(Findings* findings) {
  const std::string node = node_path("doctor-" + std::to_string(getpid()), {});
  std::string problem;
  if (ensure_node(node, {}, &problem) != 0) {
    findings->push_back(
        {Verdict::kBad, "node", problem,
         "make the folder yours with mode 0700, or set XDG_RUNTIME_DIR or TMPDIR to one of your "
         "own with some megabytes free"});
    return;
  }
  examine_life(node, findings);
  examine_way(node, findings);
  remove_node(node, {.own = identity_of_process(getpid())});
}

}  // namespace verbena::tool
