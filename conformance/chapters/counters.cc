// SPDX-License-Identifier: BSD-2-Clause
//
// The counters that the kernel shows of a port (Linux Documentation/ABI/stable/sysfs-class-infiniband): the
// folders `counters` and `hw_counters` of the near end's port. Others may use the port, too: what has been
// counted is at least what the test has done. Which counters there are, and their names, is a matter of the
// driver.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::counters_chapter {
namespace {

using Clock = std::chrono::steady_clock;
using Names = std::initializer_list<const char*>;

constexpr Traits alone = Traits().alone();
constexpr uint32_t psn = 0x123456;

class Fixture : public PairTest {
 protected:
  struct Counter {
    std::string name, path;
  };

  std::string folder(const std::string& kind) {
    return "/sys/class/infiniband/" + device().name() + "/ports/" + std::to_string(device().port_number()) +
           '/' + kind;
  }
  // Their names. Empty: the device has no such folder.
  std::vector<std::string> counters_in(const std::string& kind) {
    std::vector<std::string> out;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder(kind), error))
      if (const std::string name = entry.path().filename(); name != "lifespan") out.push_back(name);
    std::sort(out.begin(), out.end());
    return out;
  }
  static std::string text_of(const std::string& path) {
    char text[64];
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text);
    if (file >= 0) close(file);
    std::string out(text, length > 0 ? static_cast<size_t>(length) : 0);
    while (!out.empty() && isspace(static_cast<unsigned char>(out.back()))) out.pop_back();
    return out;
  }
  static std::optional<uint64_t> value_of(const std::string& path) {
    const std::string text = text_of(path);
    uint64_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return out;
  }
  // The kernel makes the files of `counters` for every driver that takes management datagrams, also for one
  // that does not answer those of performance management: reading them fails then (Linux
  // drivers/infiniband/core/sysfs.c, get_perf_mad()), and the port has none of these counters.
  static bool is_there(const std::string& kind, const std::string& path) {
    if (kind != "counters") return access(path.c_str(), R_OK) == 0;
    char byte;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool can_be_read = file >= 0 && read(file, &byte, 1) >= 0;
    if (file >= 0) close(file);
    return can_be_read;
  }
  // Not how many there are now, nor how fast it goes now, nor what a register says.
  static bool is_total(const std::string& name) {
    return !name.starts_with("active_") && !name.starts_with("current_") && !name.starts_with("num_") &&
           !name.ends_with("_active") && !name.ends_with("_register");
  }
  // The first of them that the port has. Throws NotClaimed.
  Counter counter(const std::string& kind, Names names) {
    for (const char* name : names)
      if (const std::string path = folder(kind) + '/' + name; is_there(kind, path)) return {name, path};
    throw NotClaimed{"the port has no " + kind + " of this kind, such as " + *names.begin()};
  }
  static uint64_t now(const Counter& counter) {
    const auto value = value_of(counter.path);
    if (!value)
      throw Deviation{counter.name + "; expected: a number; seen: '" + text_of(counter.path) + "'",
                      Where::current()};
    trace(counter.name + " = " + std::to_string(*value));
    return *value;
  }
  // The kernel may keep a value for as long as `lifespan` says.
  static testing::AssertionResult grows(const Counter& counter, uint64_t before, uint64_t by = 1) {
    const auto deadline = Clock::now() + scaled(std::chrono::seconds(3));
    uint64_t seen = now(counter);
    while (seen < before + by && Clock::now() < deadline) {
      give_way();
      seen = value_of(counter.path).value_or(before);
    }
    if (seen >= before + by) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << counter.name << "; expected: " << by << " more than " << before << "; seen: " << seen;
  }

  // A counter with one of these names, and its value now. Nothing: the port has none, and the clause is not
  // claimed.
  using Watched = std::optional<std::pair<Counter, uint64_t>>;
  Watched watched(ClauseId clause, Names names) {
    const About about(clause);
    try {
      const Counter of = counter("hw_counters", names);
      return std::pair(of, now(of));
    } catch (const NotClaimed& refusal) {
      not_claimed(refusal.reason);
      return std::nullopt;
    }
  }
  static testing::AssertionResult has_counted(const Watched& before) {
    return before ? grows(before->first, before->second) : testing::AssertionSuccess();
  }
  // Of a counter with one of these names: what happens in `happens` is counted.
  template <typename Happens>
  void counts(Names names, Happens happens) {
    const Counter of = counter("hw_counters", names);
    const uint64_t before = now(of);
    happens();
    EXPECT_TRUE(grows(of, before));
  }

  static PairSpec impatient() {
    PairSpec spec;
    spec.path.timeout = 12;
    spec.path.retry_count = 1;
    return spec;
  }
  // The near end expects `psn`, and the far one begins with another.
  void connect_with(uint32_t far_psn) {
    PairSpec spec = impatient();
    spec.is_connected = false;
    pair(spec);
    wire::Connect here = spec.path, there = spec.path;
    here.psn = psn;
    there.psn = far_psn;
    if (near().connect(far().facts(), here) != 0 || far().connect(near().facts(), there) != 0)
      throw Deviation{"to connect ends of different PSNs; expected: 0", Where::current()};
  }
  static void fails(Endpoint& end, const SendRequest& request) {
    ASSERT_EQ(end.post(request), 0);
    EXPECT_NE(end.completion().status, IBV_WC_SUCCESS);
  }
  SendRequest beyond(Endpoint& target) {
    SendRequest request = remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, target.facts(), 0);
    request.remote = target.address(static_cast<int64_t>(target.facts().length));
    return request;
  }
};

CONFORMANCE_TEST_AS(alone, counters, AreNumbers, "sysfs.counters.number", "sysfs.counters.rise") {
  bool any = false;
  for (const char* kind : {"counters", "hw_counters"}) {
    for (const std::string& name : counters_in(kind)) {
      const std::string path = folder(kind) + '/' + name;
      if (!is_there(kind, path)) continue;
      any = true;
      const auto before = value_of(path);
      ABOUT("sysfs.counters.number")
      EXPECT_TRUE(before) << name << "; expected: a number; seen: '" << text_of(path) << "'";
      const About about("sysfs.counters.rise");
      const auto after = value_of(path);
      if (before && after && is_total(name)) {
        EXPECT_GE(*after, *before) << name;
      }
    }
  }
  if (!any) throw NotClaimed{"the port has neither counters nor hw_counters"};
}

CONFORMANCE_TEST_AS(alone, counters, LifespanIsATime, "sysfs.hw_counters.lifespan") {
  if (counters_in("hw_counters").empty()) throw NotClaimed{"the port has no hw_counters"};
  const auto milliseconds = value_of(folder("hw_counters") + "/lifespan");
  ASSERT_TRUE(milliseconds) << "expected: a number; seen: '" << text_of(folder("hw_counters") + "/lifespan")
                            << "'";
  EXPECT_LE(*milliseconds, 10000u);
}

// What a device sends to itself need not pass its port; if it does, it passes in both directions. Counters of
// 32 bits stop at their greatest value (InfiniBand vol. 1, 16.1.3.5).
CONFORMANCE_TEST_AS(alone, counters, DataAreCounted, "sysfs.counters.data", "sysfs.counters.packets") {
  constexpr uint32_t message = 8192, messages = 128;
  const uint64_t words = uint64_t{message} * messages / 4, packets = words * 4 / pair().mtu_bytes();
  const struct {
    ClauseId clause;
    const char* name;
    uint64_t least;
  } rows[] = {{"sysfs.counters.data", "port_xmit_data", words},
              {"sysfs.counters.data", "port_rcv_data", words},
              {"sysfs.counters.packets", "port_xmit_packets", packets},
              {"sysfs.counters.packets", "port_rcv_packets", packets}};
  std::vector<std::pair<Counter, uint64_t>> before;
  for (const auto& row : rows) {
    before.emplace_back(counter("counters", {row.name}), 0);
    before.back().second = now(before.back().first);
  }
  for (Endpoint* sender : {&near(), &far()}) {
    Endpoint& target = sender == &near() ? far() : near();
    const auto done =
        sender->hammer(remote_request(IBV_WR_RDMA_WRITE, {{0, message}}, target.facts(), 0), messages);
    ASSERT_EQ(done.completed, messages);
  }
  // Half of it: a little may be other programs' traffic.
  for (size_t i = 0; topology().is_loopback() && i < std::size(rows); ++i)
    if (!grows(before[i].first, before[i].second, rows[i].least / 2))
      throw NotTested{"what the device sends to itself does not pass its port"};
  for (size_t i = 0; i < std::size(rows); ++i) {
    const About about(rows[i].clause);
    const auto& [of, was] = before[i];
    const auto counted = grows(of, was, topology().is_loopback() ? 2 * rows[i].least : rows[i].least);
    if (!counted && now(of) == UINT32_MAX) throw NotTested{of.name + " has reached its greatest value"};
    EXPECT_TRUE(counted);
  }
}

CONFORMANCE_TEST_AS(alone, counters, ReceiverNotReady, "sysfs.hw_counters.rnr") {
  counts({"rcvd_rnr_err", "rnr_nak_retry_err", "rnr_naks_rcvd"}, [&] {
    ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
    EXPECT_TRUE(near().stays_empty());
    ASSERT_EQ(far().receive(0, 64), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  });
}

CONFORMANCE_TEST_AS(alone, counters, NobodyAcknowledges, "sysfs.hw_counters.ack-timeout",
                    "sysfs.hw_counters.retry-exceeded") {
  pair(impatient());
  ASSERT_EQ(far().destroy_qp(), 0);
  const Watched timeouts = watched("sysfs.hw_counters.ack-timeout",
                                   {"local_ack_timeout_err", "to_retransmits", "completer_retry_err"});
  const Watched exceeded =
      watched("sysfs.hw_counters.retry-exceeded", {"retry_exceeded_err", "max_retry_exceeded"});
  if (!timeouts && !exceeded) return;
  fails(near(), send_request({{0, 8}}));
  ABOUT("sysfs.hw_counters.ack-timeout") EXPECT_TRUE(has_counted(timeouts));
  ABOUT("sysfs.hw_counters.retry-exceeded") EXPECT_TRUE(has_counted(exceeded));
}

CONFORMANCE_TEST_AS(alone, counters, RefusedAccess, "sysfs.hw_counters.access-sent") {
  counts({"req_remote_access_errors", "remote_access_err"}, [&] { fails(near(), beyond(far())); });
}

CONFORMANCE_TEST_AS(alone, counters, RefusesAccess, "sysfs.hw_counters.access-received") {
  counts({"resp_remote_access_errors", "res_rx_range_err"}, [&] { fails(far(), beyond(near())); });
}

CONFORMANCE_TEST_AS(alone, counters, RequestsFail, "sysfs.hw_counters.request-errors") {
  counts({"req_cqe_error"}, [&] { fails(near(), beyond(far())); });
}

CONFORMANCE_TEST_AS(alone, counters, ReceivesFail, "sysfs.hw_counters.receive-errors",
                    "sysfs.hw_counters.receive-length") {
  pair();
  const Watched errors = watched("sysfs.hw_counters.receive-errors", {"resp_cqe_error"});
  const Watched lengths =
      watched("sysfs.hw_counters.receive-length", {"resp_local_length_error", "res_exceeds_wqe"});
  if (!errors && !lengths) return;
  ASSERT_EQ(near().receive(0, 8), 0);
  fails(far(), send_request({{0, 64}}));
  ABOUT("sysfs.hw_counters.receive-errors")
  EXPECT_NE(near().received().status, IBV_WC_SUCCESS);  // with which status is another clause's
  ABOUT("sysfs.hw_counters.receive-errors") EXPECT_TRUE(has_counted(errors));
  ABOUT("sysfs.hw_counters.receive-length") EXPECT_TRUE(has_counted(lengths));
}

CONFORMANCE_TEST_AS(alone, counters, SendsAreFlushed, "sysfs.hw_counters.request-flushes") {
  pair();
  counts({"req_cqe_flush_error"}, [&] {
    ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
    if (near().post(send_request({{0, 8}})) != 0)
      throw NotClaimed{"a request in ERR is refused: nothing is flushed"};
    const auto flushed = near().poll(1, scaled(std::chrono::seconds(5)));
    if (flushed.empty() || flushed.front().status != IBV_WC_WR_FLUSH_ERR)
      throw NotTested{"a request in ERR is not flushed, of which flush.rc.later tells"};
  });
}

CONFORMANCE_TEST_AS(alone, counters, ReceivesAreFlushed, "sysfs.hw_counters.receive-flushes") {
  pair();
  counts({"resp_cqe_flush_error"}, [&] {
    ASSERT_EQ(near().receive(0, 64), 0);
    ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
    const auto flushed = near().poll(1, scaled(std::chrono::seconds(5)), true);
    if (flushed.empty() || flushed.front().status != IBV_WC_WR_FLUSH_ERR)
      throw NotTested{"a receive is not flushed, of which flush.rc.receives tells"};
  });
}

// The far end's first request has a later PSN than the near end expects, as if one were lost.
CONFORMANCE_TEST_AS(alone, counters, RequestIsAhead, "sysfs.hw_counters.out-of-sequence") {
  connect_with(psn + 5);
  ASSERT_EQ(near().receive(0, 64), 0);
  counts({"out_of_sequence", "out_of_seq_request"}, [&] { fails(far(), send_request({{0, 8}})); });
}

// The PSN of a request that the near end has answered long ago.
CONFORMANCE_TEST_AS(alone, counters, RequestIsOld, "sysfs.hw_counters.duplicates") {
  connect_with(psn - 5);
  ASSERT_EQ(near().receive(0, 64), 0);
  counts({"duplicate_request", "dup_req"}, [&] {
    ASSERT_EQ(far().post(send_request({{0, 8}})), 0);
    far().completion();  // acknowledged once more, or not at all
  });
  EXPECT_TRUE(near().stays_empty(true));
}

CONFORMANCE_TEST_AS(alone, counters, DatagramWithoutReceive, "sysfs.hw_counters.no-receive") {
  PairSpec spec;
  spec.both.type = IBV_QPT_UD;
  pair(spec);
  counts({"out_of_buffer", "rcvd_dropped"}, [&] {
    ASSERT_EQ(far().post(send_request({{0, 8}})), 0);
    EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  });
}

}  // namespace
}  // namespace conformance::counters_chapter
