// SPDX-License-Identifier: BSD-2-Clause
//
// verbena top and verbena metrics as commands; top on a terminal, too.
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adapter/clock.h"
#include "command_under_test.h"

namespace verbena::test {
namespace {

class TopCommand : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    ASSERT_TRUE(verbena({"run", "--node", "n", "--", "true"}).exited_with(0));
    node_ = folder_ + "/verbena-" + std::to_string(geteuid()) + "/n-1-eth";
    hold(node_);
  }
  std::string node_;
};

TEST_F(TopCommand, PrintsOneReport) {
  const Outcome outcome = verbena({"top", "--node", "n", "--once", "--interval", "0.1"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_NE(outcome.out.find("1 node, 0 processes, 0 QPs"), std::string::npos) << outcome.out;
}

TEST_F(TopCommand, PrintsAsManyLinesOfJsonAsAskedFor) {
  const Outcome outcome = verbena({"top", "--node", "n", "--json", "--count", "3", "--interval", "0.1"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  const auto json = nlohmann::json::parse(outcome.out.substr(0, outcome.out.find('\n')), nullptr, false);
  EXPECT_EQ(json["nodes"][0]["path"], node_);
  EXPECT_GE(json["seconds"], 0.1);
}

TEST_F(TopCommand, WithoutATerminalSaysSo) {
  const Outcome outcome = verbena({"top", "--node", "n"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("top needs a terminal"), std::string::npos) << outcome.err;
}

TEST_F(TopCommand, RefusesAnUnknownColumn) {
  EXPECT_TRUE(verbena({"top", "--sort", "beauty"}).exited_with(2));
}

TEST_F(TopCommand, MetricsTellThePorts) {
  const Outcome outcome = verbena({"metrics", "--node", "n"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_NE(
      outcome.out.find("verbena_port_active{node=\"" + node_ + "\",device=\"verbena0\",port=\"1\"} 1\n"),
      std::string::npos)
      << outcome.out;
}

// Reads what the command draws, until `text` has come.
bool reads(int terminal, const std::string& text, std::string* seen) {
  const int64_t end = now_ns() + 30'000'000'000;
  while (seen->find(text) == std::string::npos) {
    pollfd input{terminal, POLLIN, 0};
    char bytes[4096];
    const ssize_t n = now_ns() < end && poll(&input, 1, 1000) == 1 ? read(terminal, bytes, sizeof bytes) : 0;
    if (n < 0 || (n == 0 && now_ns() >= end)) return false;
    seen->append(bytes, static_cast<size_t>(n));
  }
  return true;
}

TEST_F(TopCommand, DrawsOnATerminalAndEndsWithAKey) {
  const winsize size{24, 120, 0, 0};
  int terminal;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    setenv("TERM", "xterm", 1);
    setenv("TMPDIR", folder_.c_str(), 1);
    execl(VERBENA_COMMAND, VERBENA_COMMAND, "top", "--node", "n", nullptr);
    _exit(127);
  }
  std::string seen;
  EXPECT_TRUE(reads(terminal, "1 node, 0 processes", &seen)) << seen;
  EXPECT_TRUE(reads(terminal, "sorted by bytes", &seen)) << seen;
  EXPECT_EQ(write(terminal, "s", 1), 1);
  seen.clear();
  EXPECT_TRUE(reads(terminal, "requests", &seen)) << seen;
  EXPECT_EQ(write(terminal, "q", 1), 1);
  EXPECT_TRUE(reads(terminal, "\x1b[?1049l", &seen)) << seen;  // the terminal as it was
  int status = -1;
  alarm(60);
  waitpid(pid, &status, 0);
  alarm(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  close(terminal);
}

}  // namespace
}  // namespace verbena::test
