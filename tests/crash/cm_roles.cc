// SPDX-License-Identifier: BSD-2-Clause
#include "cm_roles.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

namespace verbena::crash {
namespace {

constexpr int kAnswerMilliseconds = 20'000;

}  // namespace

CmRole::CmRole() {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw Failure("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::string program = VERBENA_CRASH_CM_ROLE;
  char* arguments[] = {program.data(), nullptr};
  const int error = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (error != 0) throw Failure("cannot start " + program);
  answer("start");
}

CmRole::~CmRole() {
  die();
  close(to_);
  close(from_);
}

std::string CmRole::call(const std::string& command) {
  const std::string line = command + "\n";
  if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) throw Failure("it is gone");
  return answer(command);
}

std::string CmRole::event(int milliseconds) {
  while (events_.empty()) {
    const std::string line = read_line(milliseconds);
    if (line.empty()) return "";
    if (line.rfind("event ", 0) != 0) throw Failure("an answer that nobody has asked for: " + line);
    events_.push_back(line.substr(6));
  }
  std::string first = events_.front();
  events_.pop_front();
  return first;
}

void CmRole::expect(const std::string& event_begins) {
  const std::string got = event(kAnswerMilliseconds);
  require(got.rfind(event_begins, 0) == 0, "event \"" + got + "\", not \"" + event_begins + "\"");
}

void CmRole::expect_any(const std::set<std::string>& names) {
  std::string got, all;
  do {
    got = event(kAnswerMilliseconds);
    all += " \"" + got + "\"";
    require(!got.empty(), "events" + all + ", and no more");
  } while (names.count(got.substr(0, got.find(' '))) == 0);
}

void CmRole::turn_deaf() {
  call("deaf");
  deaf_ = true;
}

void CmRole::hear() {
  if (!deaf_) return;
  deaf_ = false;
  call("hear");
}

void CmRole::die() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void CmRole::stop() {
  if (stopped_) return;
  kill(pid_, SIGSTOP);
  int status = 0;
  require(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "it does not stop");
  stopped_ = true;
}

void CmRole::go_on() {
  kill(pid_, SIGCONT);
  stopped_ = false;
}

std::string CmRole::answer(const std::string& to) {
  for (;;) {
    const std::string line = read_line(kAnswerMilliseconds);
    if (line.rfind("event ", 0) == 0) {
      events_.push_back(line.substr(6));
      continue;
    }
    require(line.rfind("ok", 0) == 0, "\"" + line + "\" to \"" + to + "\"");
    return line.size() > 3 ? line.substr(3) : "";
  }
}

std::string CmRole::read_line(int milliseconds) {
  size_t end;
  while ((end = pending_.find('\n')) == std::string::npos) {
    pollfd readable{from_, POLLIN, 0};
    char more[256];
    if (poll(&readable, 1, milliseconds) != 1) return "";
    const ssize_t got = read(from_, more, sizeof more);
    if (got <= 0) return "";
    pending_.append(more, static_cast<size_t>(got));
  }
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

std::string name_of(Stage stage) {
  constexpr const char* kNames[] = {"Created",         "Bound",         "Listening",
                                    "AddressResolved", "RouteResolved", "Requested",
                                    "Responded",       "Established",   "Disconnecting"};
  return kNames[static_cast<int>(stage)];
}

std::string name_of(Form form) { return form == Form::kWithQueuePairs ? "WithQueuePair" : ""; }

void Pair::go_to(Stage stage, Form form, bool client_disconnects) {
  const bool queue_pairs = form == Form::kWithQueuePairs;
  const auto reached = [&](Stage step) { return stage >= step; };
  server->call("id tcp");
  client->call("id tcp");
  if (reached(Stage::kBound)) port = server->call("bind 0 0");
  if (reached(Stage::kListening)) server->call("listen 0");
  if (reached(Stage::kAddressResolved)) resolve(*client);
  if (reached(Stage::kAddressResolved) && queue_pairs) client->call("qp 0");
  if (reached(Stage::kRouteResolved)) route(*client);
  if (reached(Stage::kRequested)) client->call("connect 0");
  if (reached(Stage::kRequested)) server->expect("CONNECT_REQUEST 0 0 1");
  if (reached(Stage::kRequested) && queue_pairs) server->call("qp 1");
  if (stage == Stage::kResponded && queue_pairs) client->turn_deaf();
  if (reached(Stage::kResponded)) server->call("accept 1");
  if (reached(Stage::kResponded) && !queue_pairs) client->expect("CONNECT_RESPONSE 0 0");
  if (reached(Stage::kEstablished) && !queue_pairs) client->call("establish 0");
  if (reached(Stage::kEstablished) && queue_pairs) client->expect("ESTABLISHED 0 0");
  if (reached(Stage::kEstablished)) server->expect("ESTABLISHED 0 1");
  if (reached(Stage::kDisconnecting)) {
    client_disconnects ? client->call("disconnect 0") : server->call("disconnect 1");
    client_disconnects ? server->expect("DISCONNECTED 0 1") : client->expect("DISCONNECTED 0 0");
  }
}

void Pair::resolve(CmRole& role) const {
  role.call("resolve 0 " + port);
  role.expect("ADDR_RESOLVED 0 0");
}

void Pair::route(CmRole& role) {
  role.call("route 0");
  role.expect("ROUTE_RESOLVED 0 0");
}

}  // namespace verbena::crash
