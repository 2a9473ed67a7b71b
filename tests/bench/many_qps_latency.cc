// SPDX-License-Identifier: BSD-2-Clause
//
// The latency of a message between two processes that are connected by many queue pairs: SENDs go back and
// forth, one at a time, message i on queue pair i mod U, and both ends poll one completion queue. Prints one
// line of JSON: half round trips. Links libibverbs only, so it runs on any adapter.
//
//   verbena_bench_many_qps_latency --port P [options]        the server
//   verbena_bench_many_qps_latency --port P [options] HOST   the client, which measures
//
//   --qps N            connected, the same at both ends (1)
//   --used U           of them (all)
//   --size BYTES       of a message (8), sent inline if the device takes it
//   --count MESSAGES   there and back (50000), the same at both ends; before them go one for each queue pair
//   in
//                      use, and 1,000 more
//   --gid-index I      default: the first that is not link-local
//
// Numbers and addresses of the queue pairs go over a TCP connection to port P. Sources: ibv_post_send(3),
// ibv_poll_cq(3), ibv_modify_qp(3).
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rc_qp.h"
#include "talk.h"

namespace verbena::bench {
namespace {

constexpr unsigned kTimeLimitSeconds = 60;
constexpr uint64_t kWarmUp = 1000;
constexpr uint32_t kSends = 16;  // not completed, at most
constexpr uint32_t kInlineBytes = 64;
constexpr uint64_t kCompletions = 4095;  // at least: the queue is the same size whether one or 1,000 use it

struct Options {
  std::string host;  // empty: the server
  std::string port;
  uint64_t qps = 1;
  uint64_t used = 0;  // 0: all
  uint64_t size = 8;
  uint64_t count = 50000;
  uint64_t gid_index = UINT64_MAX;  // by itself
};

bool is_link_local(const ibv_gid& gid) { return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80; }

bool is_empty(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw), [](uint8_t byte) { return byte == 0; });
}

Port choose_port(ibv_context* context, const Options& options) {
  if (options.gid_index != UINT64_MAX) return query_port(context, static_cast<uint8_t>(options.gid_index));
  const Port first = query_port(context);
  const int length = std::min(first.attributes.gid_tbl_len, UINT8_MAX);
  for (int i = 0; i < length; ++i) {
    ibv_gid gid;
    if (ibv_query_gid(context, 1, i, &gid) == 0 && !is_link_local(gid) && !is_empty(gid)) {
      return query_port(context, static_cast<uint8_t>(i));
    }
  }
  return first;
}

// One end: N connected queue pairs, two receives posted in each.
class End {
 public:
  End(const Options& options, Talk& talk)
      : size_(static_cast<uint32_t>(options.size)), used_(options.used), buffers_(2 * options.size) {
    ibv_context* context = open_first_device();
    const Port port = choose_port(context, options);
    ibv_pd* pd = ibv_alloc_pd(context);
    if (pd == nullptr) die("ibv_alloc_pd", errno);
    memory_ = ibv_reg_mr(pd, buffers_.data(), buffers_.size(), IBV_ACCESS_LOCAL_WRITE);
    if (memory_ == nullptr) die("ibv_reg_mr", errno);
    completions_ = ibv_create_cq(context, static_cast<int>(std::max(kCompletions, 2 * options.qps + kSends)),
                                 nullptr, nullptr, 0);
    if (completions_ == nullptr) die("ibv_create_cq", errno);

    const bool is_short = size_ <= kInlineBytes;
    flags_ = IBV_SEND_SIGNALED | (is_short ? IBV_SEND_INLINE : 0);
    std::vector<uint32_t> numbers, peers(options.qps);
    for (uint64_t i = 0; i < options.qps; ++i) {
      qps_.push_back(create_rc_qp(pd, completions_, kSends, is_short ? size_ : 0));
      numbers.push_back(qps_.back()->qp_num);
    }
    const Destination other = talk.exchange(Destination{port.gid, port.attributes.lid});
    talk.exchange(numbers.data(), peers.data(), numbers.size() * sizeof numbers[0]);
    for (size_t i = 0; i < qps_.size(); ++i) {
      connect(qps_[i], peers[i], other, port);
      for (int j = 0; j < 2; ++j) post_receive(i);
    }
    talk.exchange('r');  // ready
  }

  size_t qps() const { return qps_.size(); }
  size_t used() const { return used_; }

  void send(size_t at) {
    while (unseen_ == kSends) poll();
    ibv_sge piece{address(), size_, memory_->lkey};
    ibv_send_wr request{};
    request.wr_id = at;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = flags_;
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(qps_[at], &request, &bad)) die("ibv_post_send", error);
    ++unseen_;
  }

  // Returns when the next message has come, on this queue pair.
  void receive(size_t at) {
    while (!came_) poll();
    came_ = false;
    if (came_at_ != at) die("receive", "a message on another queue pair");
    post_receive(at);
  }

  // Returns when all sends have completed.
  void finish() {
    while (unseen_ > 0) poll();
  }

 private:
  uint64_t address() const { return reinterpret_cast<uintptr_t>(memory_->addr); }

  void post_receive(size_t at) {
    ibv_sge piece{address() + size_, size_, memory_->lkey};
    ibv_recv_wr request{};
    request.wr_id = at;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qps_[at], &request, &bad)) die("ibv_post_recv", error);
  }

  void poll() {
    ibv_wc found[4];
    const int got = ibv_poll_cq(completions_, static_cast<int>(std::size(found)), found);
    if (got < 0) die("ibv_poll_cq", errno);
    for (int i = 0; i < got; ++i) {
      if (found[i].status != IBV_WC_SUCCESS) die("completion", ibv_wc_status_str(found[i].status));
      if (found[i].opcode == IBV_WC_SEND) {
        --unseen_;
      } else {
        if (came_) die("receive", "a message before the last was answered");
        came_ = true;
        came_at_ = found[i].wr_id;
      }
    }
  }

  const uint32_t size_;
  const size_t used_;
  std::vector<char> buffers_;  // the buffer to send from, and behind it those to receive into
  ibv_mr* memory_ = nullptr;
  ibv_cq* completions_ = nullptr;
  unsigned flags_ = 0;
  std::vector<ibv_qp*> qps_;
  uint32_t unseen_ = 0;
  bool came_ = false;
  uint64_t came_at_ = 0;
};

void answer(End& end, uint64_t messages) {
  for (uint64_t i = 0; i < messages; ++i) {
    const size_t at = i % end.used();
    end.receive(at);
    end.send(at);
  }
}

// Microseconds, half a round trip each.
std::vector<double> ask(End& end, uint64_t warm_up, uint64_t messages) {
  std::vector<double> samples;
  samples.reserve(messages);
  for (uint64_t i = 0; i < warm_up + messages; ++i) {
    const size_t at = i % end.used();
    const auto begin = std::chrono::steady_clock::now();
    end.send(at);
    end.receive(at);
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    if (i >= warm_up) samples.push_back(spent.count() / 2);
  }
  return samples;
}

[[noreturn]] void usage() {
  std::fprintf(
      stderr,
      "usage: verbena_bench_many_qps_latency --port P [--qps N] [--used U] [--size BYTES] [--count MESSAGES] "
      "[--gid-index I] [HOST]\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  const std::pair<std::string_view, uint64_t*> numbers[] = {{"--qps", &options.qps},
                                                            {"--used", &options.used},
                                                            {"--size", &options.size},
                                                            {"--count", &options.count},
                                                            {"--gid-index", &options.gid_index}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--")) {
      options.host = name;
      continue;
    }
    if (++i == argc) usage();
    const auto* number = std::find_if(std::begin(numbers), std::end(numbers),
                                      [&](const auto& each) { return each.first == name; });
    if (number != std::end(numbers)) {
      *number->second = std::strtoull(argv[i], nullptr, 10);
    } else if (name == "--port") {
      options.port = argv[i];
    } else {
      usage();
    }
  }
  const auto is_between = [](uint64_t value, uint64_t most) { return value > 0 && value <= most; };
  if (options.used == 0) options.used = options.qps;
  if (options.port.empty() || !is_between(options.qps, 10000) || !is_between(options.used, options.qps) ||
      !is_between(options.size, 1 << 20) || !is_between(options.count, 100000000)) {
    usage();
  }
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  alarm(kTimeLimitSeconds);
  Talk talk(options.host, options.port);
  End end(options, talk);
  const uint64_t warm_up = options.used + kWarmUp;
  if (options.host.empty()) {
    answer(end, warm_up + options.count);
    end.finish();
    talk.exchange('e');  // ended
    return 0;
  }
  std::vector<double> samples = ask(end, warm_up, options.count);
  end.finish();
  talk.exchange('e');
  std::sort(samples.begin(), samples.end());
  std::printf(
      "{\"qps\": %zu, \"used\": %zu, \"size\": %zu, \"count\": %zu, \"median_us\": %.4f, \"mean_us\": %.4f, "
      "\"min_us\": "
      "%.4f, "
      "\"p99_us\": %.4f}\n",
      end.qps(), end.used(), static_cast<size_t>(options.size), samples.size(), samples[samples.size() / 2],
      std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size()),
      samples.front(), samples[samples.size() * 99 / 100]);
  return 0;
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::run(argc, argv); }
