// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace conformance {

struct Options {
  std::string device;        // empty: the first device with an active port
  int port = 0;              // 0: the device's first active port
  int gid_index = -1;        // -1: chosen from the port's GID table
  std::string filter = "*";  // of test names: '*', '?', ':' between patterns, '-' before what is left out
  std::vector<std::string> chapters;
  bool quick = false;
  int jobs = 0;             // 0: as many as there are processors, at most 4
  double time_scale = 1.0;  // multiplies every limit and every wait; never a time that a test measures
  std::string expectations;
  std::set<std::string> in_vain;           // tests all of whose clauses are expected to deviate
  std::set<std::string> known_deviations;  // clauses: those of `expectations`
  std::string report_dir;
  bool allow_disruptive = false;
  std::string event_command;  // COMMAND EVENT DEVICE PORT lets events happen; "ask": a human being does
  std::string peer;           // HOST or HOST:PORT of a verbs-conformance --serve; empty: loopback
  bool serve = false;
  std::string bind;   // serve: the address to listen on; empty: all of them
  int tcp_port = -1;  // serve: -1: the default one, 0: any, shown when it listens
  int repeat = 1;     // rounds over all tests
  double soak = 0;    // minutes; 0: no soak. Rounds until it is over
  int random = 0;     // how many random programs to run; with any, nothing else is run unless it is selected
  uint64_t seed = 1;  // of the first of them
  std::string sign;   // key of ssh-keygen(1) that signs report.json

  bool all_ports = false, all_gids = false;

  bool list = false;
  bool audit = false;

  enum class Command : uint8_t { run, compare, history, render, verify };
  Command command = Command::run;
  std::vector<std::string> reports;           // compare, history: the files; render, verify: one
  std::string page;                           // compare, history, render: where the page goes, or empty
  std::vector<std::string> verdicts, levels;  // compare: only clauses with one of these; empty: all
  bool no_regressions = false;                // compare: exit status 1 if a later report is worse
  std::string signers, identity;              // verify: ssh-keygen's allowed signers, and which of them
};

// Nothing when the program must end at once with `status` (help, or a wrong command line).
std::optional<Options> parse_options(int argc, char** argv, int& status);

bool matches(const std::string& filter, const std::string& test_name);

}  // namespace conformance
