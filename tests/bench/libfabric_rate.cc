// SPDX-License-Identifier: BSD-2-Clause
//
// A yardstick that libfabric-bin lacks: how many short messages per second one process can send to another
// over libfabric. The server receives, the client sends; the client measures, from the first message to the
// server's message that it has the last. Prints one line of JSON.
//
//   verbena_bench_libfabric_rate --port P [options]          the server
//   verbena_bench_libfabric_rate --port P [options] HOST     the client; HOST tells the address family, too
//
//   --provider NAME   as fi_info(1) names it (tcp); not one that requires registered memory
//   --family 4|6      of the server (4)
//   --size BYTES, --count MESSAGES    (64), (1000000)
//   --window MESSAGES                 sends or receives that are posted at most (128)
//   --how inject|send fi_inject, or fi_send with a completion for each message
//
// Each process has one endpoint, FI_EP_RDM as fi_pingpong has with -e rdm, and one thread, which is declared
// to the provider (FI_THREAD_DOMAIN); completions are read in batches. The addresses of the endpoints go over
// a TCP connection to port P. Sources: fi_getinfo(3), fi_endpoint(3), fi_msg(3), fi_cq(3), fi_av(3),
// fi_domain(3), fi_rxm(7).
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "talk.h"

namespace verbena::bench {
namespace {

constexpr unsigned kTimeLimitSeconds = 60;
constexpr size_t kBatch = 32;  // completions read at once
constexpr size_t kNameBytes = 128;

struct Options {
  std::string provider = "tcp";
  std::string host;  // empty: the server
  std::string port;
  int family = AF_INET;
  size_t size = 64;
  size_t count = 1000000;
  size_t window = 128;
  bool inject = true;
};

// libfabric's calls return 0 or a negative number of fi_errno(3).
void demand(ssize_t result, const char* what) {
  if (result < 0) die(what, fi_strerror(static_cast<int>(-result)));
}

// An endpoint with one completion queue for both directions, and its only peer.
class Endpoint {
 public:
  Endpoint(const Options& options, const std::string& address) {
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup(options.provider.c_str());  // fi_freeinfo frees it
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    demand(fi_getinfo(FI_VERSION(1, 9), address.c_str(), nullptr, FI_SOURCE, hints, &info_), "fi_getinfo");
    fi_freeinfo(hints);

    demand(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
    demand(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    demand(fi_av_open(domain_, &table, &addresses_, nullptr), "fi_av_open");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_MSG;
    queue.size = 2 * options.window + kBatch;
    demand(fi_cq_open(domain_, &queue, &completions_, nullptr), "fi_cq_open");
    demand(fi_endpoint(domain_, info_, &endpoint_, nullptr), "fi_endpoint");
    demand(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind");
    demand(fi_ep_bind(endpoint_, &completions_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    demand(fi_enable(endpoint_), "fi_enable");
  }
  ~Endpoint() {
    fi_close(&endpoint_->fid);
    fi_close(&completions_->fid);
    fi_close(&addresses_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const char* provider() const { return info_->fabric_attr->prov_name; }
  size_t inject_limit() const { return info_->tx_attr->inject_size; }
  // What fits at once, of what was asked for.
  size_t window(size_t wanted) const {
    return std::min({wanted, info_->tx_attr->size, info_->rx_attr->size});
  }

  using Name = std::array<char, kNameBytes>;
  Name name() const {
    Name name{};
    size_t size = name.size();
    demand(fi_getname(&endpoint_->fid, name.data(), &size), "fi_getname");
    return name;
  }
  void meet(const Name& other) {
    if (fi_av_insert(addresses_, other.data(), 1, &peer_, 0, nullptr) != 1)
      die("fi_av_insert", "no such address");
  }

  bool try_inject(const void* bytes, size_t size) {
    return done(fi_inject(endpoint_, bytes, size, peer_), "fi_inject");
  }
  bool try_send(const void* bytes, size_t size, fi_context* context) {
    return done(fi_send(endpoint_, bytes, size, nullptr, peer_, context), "fi_send");
  }
  bool try_receive(void* bytes, size_t size, fi_context* context) {
    return done(fi_recv(endpoint_, bytes, size, nullptr, FI_ADDR_UNSPEC, context), "fi_recv");
  }

  // Reads completions and drives the endpoint: its progress is manual.
  size_t poll(fi_cq_msg_entry* entries) {
    const ssize_t got = fi_cq_read(completions_, entries, kBatch);
    if (got == -FI_EAGAIN) return 0;
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(completions_, &error, 0);
      demand(-error.err, "completion");
    }
    demand(got, "fi_cq_read");
    return static_cast<size_t>(got);
  }

 private:
  static bool done(ssize_t result, const char* what) {
    if (result == -FI_EAGAIN) return false;
    demand(result, what);
    return true;
  }

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* completions_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
};

// Sends and receives over an endpoint, and how many of them are under way.
class Traffic {
 public:
  Traffic(const Options& options, Endpoint& endpoint)
      : endpoint_(endpoint),
        size_(options.size),
        window_(endpoint.window(options.window)),
        inject_(options.inject && options.size <= endpoint.inject_limit()),
        contexts_(window_),
        received_in_(window_),
        in_(window_ * size_),
        out_(size_) {}

  bool injects() const { return inject_; }
  size_t window() const { return window_; }
  size_t received() const { return received_; }
  size_t sending() const { return sending_; }

  void post_receives(size_t number) {
    for (size_t i = 0; i < std::min(number, window_); ++i) post_receive(i);
  }

  // Returns when the provider has taken the message; drives the endpoint until then.
  void send_one() {
    if (inject_) {
      while (!endpoint_.try_inject(out_.data(), size_)) drive();
      return;
    }
    while (sending_ == window_ || !endpoint_.try_send(out_.data(), size_, &contexts_[next_])) drive();
    next_ = next_ + 1 == window_ ? 0 : next_ + 1;
    ++sending_;
  }

  // Receives that have completed are posted again.
  void drive() {
    fi_cq_msg_entry entries[kBatch];
    const size_t got = endpoint_.poll(entries);
    for (size_t i = 0; i < got; ++i) {
      if ((entries[i].flags & FI_SEND) != 0) {
        --sending_;
        continue;
      }
      if (entries[i].len != size_) die("receive", "a message of another size");
      ++received_;
      post_receive(
          static_cast<size_t>(static_cast<fi_context*>(entries[i].op_context) - received_in_.data()));
    }
  }

 private:
  void post_receive(size_t slot) {
    while (!endpoint_.try_receive(in_.data() + slot * size_, size_, &received_in_[slot])) {
    }
  }

  Endpoint& endpoint_;
  const size_t size_;
  const size_t window_;
  const bool inject_;
  std::vector<fi_context> contexts_;     // of sends; the provider's until they complete
  std::vector<fi_context> received_in_;  // of receives, by slot
  std::vector<char> in_, out_;
  size_t received_ = 0;
  size_t sending_ = 0;
  size_t next_ = 0;
};

// Both sides: one message there and one back, so that the connection exists before the clock starts. Then the
// client's messages, and one back when all have come.
void serve(const Options& options, Traffic& traffic, const Talk& talk) {
  while (traffic.received() < 1) traffic.drive();
  traffic.send_one();
  while (traffic.received() < 1 + options.count) traffic.drive();
  traffic.send_one();
  while (!talk.closed_by_other()) traffic.drive();
}

double ask(const Options& options, Traffic& traffic) {
  traffic.send_one();
  while (traffic.received() < 1) traffic.drive();
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < options.count; ++i) traffic.send_one();
  while (traffic.received() < 2) traffic.drive();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: verbena_bench_libfabric_rate --port P [--provider NAME] [--family 4|6] [--size BYTES] "
               "[--count N] "
               "[--window N] [--how inject|send] [HOST]\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--")) {
      options.host = name;
      continue;
    }
    if (++i == argc) usage();
    const std::string value = argv[i];
    const std::pair<std::string_view, size_t*> numbers[] = {
        {"--size", &options.size}, {"--count", &options.count}, {"--window", &options.window}};
    const auto* number =
        std::find_if(std::begin(numbers), std::end(numbers), [&](auto& each) { return each.first == name; });
    if (number != std::end(numbers)) {
      *number->second = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--provider") {
      options.provider = value;
    } else if (name == "--port") {
      options.port = value;
    } else if (name == "--family" && (value == "4" || value == "6")) {
      options.family = value == "4" ? AF_INET : AF_INET6;
    } else if (name == "--how" && (value == "inject" || value == "send")) {
      options.inject = value == "inject";
    } else {
      usage();
    }
  }
  if (options.port.empty() || options.size == 0 || options.count == 0 || options.window == 0) usage();
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  alarm(kTimeLimitSeconds);
  Talk talk(options.host, options.port, options.family);
  Endpoint endpoint(options, talk.address());
  Traffic traffic(options, endpoint);
  endpoint.meet(talk.exchange(endpoint.name()));
  traffic.post_receives(options.host.empty() ? traffic.window() : 2);
  if (options.host.empty()) {
    serve(options, traffic, talk);
    return 0;
  }
  const double seconds = ask(options, traffic);
  std::printf(
      "{\"provider\": \"%s\", \"how\": \"%s\", \"size\": %zu, \"count\": %zu, \"window\": %zu, \"seconds\": "
      "%.6f, "
      "\"million_messages_per_second\": %.6f}\n",
      endpoint.provider(), traffic.injects() ? "inject" : "send", options.size, options.count,
      traffic.window(), seconds, static_cast<double>(options.count) / seconds / 1e6);
  return 0;
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::run(argc, argv); }
