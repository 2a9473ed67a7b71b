// SPDX-License-Identifier: BSD-2-Clause
//
// Programs of librdmacm (cm_role.cc) under the driver's control, and pairs of them on the way to a
// connection.
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <set>
#include <string>

namespace verbena::crash {

class CmRole {
 public:
  CmRole();
  CmRole(const CmRole&) = delete;
  CmRole& operator=(const CmRole&) = delete;
  ~CmRole();

  pid_t pid() const { return pid_; }

  // Sends a command. Returns the answer without the "ok ".
  std::string call(const std::string& command);

  // The next event, "NAME STATUS ID [NEW ID]"; "" when none comes in time.
  std::string event(int milliseconds);
  void expect(const std::string& event_begins);
  // Reads events until one has a name of `names`; Failure when none comes.
  void expect_any(const std::set<std::string>& names);

  // Stops reading events from its channel until hear(), which does nothing to a role that reads them.
  void turn_deaf();
  void hear();

  void die();
  void stop();   // SIGSTOP; returns when the process has stopped
  void go_on();  // SIGCONT

 private:
  std::string answer(const std::string& to);
  std::string read_line(int milliseconds);

  pid_t pid_ = -1;
  bool stopped_ = false;
  bool deaf_ = false;
  int to_ = -1, from_ = -1;
  std::string pending_;
  std::deque<std::string> events_;
};

enum class Stage {
  kCreated,
  kBound,
  kListening,
  kAddressResolved,
  kRouteResolved,
  kRequested,  // the server has not answered
  kResponded,  // the client has not confirmed
  kEstablished,
  kDisconnecting,  // one side has disconnected, the other not yet
};

// Whether the ids have queue pairs. If so, librdmacm changes their states and answers a response by itself.
enum class Form { kIdsAlone, kWithQueuePairs };

std::string name_of(Stage stage);
std::string name_of(Form form);

// A server and a client, on the way to a connection. The server's id 0 listens, 1 is the connection's.
struct Pair {
  std::unique_ptr<CmRole> server = std::make_unique<CmRole>();
  std::unique_ptr<CmRole> client = std::make_unique<CmRole>();
  std::string port;

  // With queue pairs the client does not read events at kResponded: it would confirm.
  void go_to(Stage stage, Form form, bool client_disconnects);
  void resolve(CmRole& role) const;
  static void route(CmRole& role);
};

}  // namespace verbena::crash
