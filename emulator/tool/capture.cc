// SPDX-License-Identifier: BSD-2-Clause
//
// verbena capture: the traffic of a node as RoCE v2 packets.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "adapter/clock.h"
#include "capture/packet_builder.h"
#include "capture/packet_text.h"
#include "capture/pcapng.h"
#include "fabric/descriptor.h"
#include "fabric/instruments.h"
#include "record/collector.h"
#include "tool/command.h"
#include "tool/extcap.h"
#include "tool/program.h"
#include "tool/recorded_node.h"

namespace verbena::tool {
namespace {

// ns. Between two looks at the rings.
constexpr int64_t kPause = 10'000'000;
// ns. A process may be held up this long between the time of a record and its writing.
constexpr int64_t kHoldBack = 20'000'000;
// ns. So long the processes that run already have to begin.
constexpr int64_t kBeginning = 2'000'000'000;
// Bytes of a packet that --snaplen keeps at least: the headers.
constexpr uint32_t kShortestSnap = 64;

struct CaptureOptions {
  NodeOptions node;
  std::string file;  // "": text; "-": standard output
  uint32_t snaplen = 0;
  uint32_t ring_mib = 16;
  uint64_t count = 0;
  double seconds = 0;
  std::vector<std::string> program;
  Extcap extcap;
};

class Capture {
 public:
  explicit Capture(const CaptureOptions& options) : options_(options) {}

  int run();

 private:
  int begin(std::string* problem);
  int open_file(std::string* problem);
  int start_program();
  void follow();
  int wait_for_signal();
  bool has_ended(int signal);
  int end_program();
  void take_until(int64_t time);
  void write(const capture::CapturedPacket& packet);
  int end();
  bool has_enough() const { return options_.count != 0 && packets_ >= options_.count; }
  bool is_over() const { return error_ != 0 || has_enough(); }

  const CaptureOptions& options_;
  RecordedNode node_;
  std::unique_ptr<record::Collector> collector_;
  std::unique_ptr<capture::PacketBuilder> builder_;
  capture::CaptureFile out_;
  Descriptor file_;
  int64_t to_wall_clock_ = 0;
  uint64_t begun_ = 0;
  uint64_t packets_ = 0;
  uint32_t index_ = 0;
  int error_ = 0;       // errno of writing
  sigset_t signals_{};  // that are waited for
  pid_t child_ = 0;     // the program; 0: there is none, or it has ended
  int status_ = 0;      // of waitpid(2)
};

int Capture::open_file(std::string* problem) {
  if (options_.file.empty()) return 0;
  file_.reset(options_.file == "-"
                  ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                  : open(options_.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  int error = file_.fd < 0 ? errno : 0;
  if (error == 0)
    error =
        out_.begin(file_.fd, {"verbena", options_.extcap.interface, "node " + node_.path, options_.snaplen});
  if (error != 0) *problem = "cannot write to " + options_.file + ": " + std::strerror(error);
  return error;
}

int Capture::begin(std::string* problem) {
  if (node_.open(options_.node, problem) != 0) return kFailed;
  if (open_file(problem) != 0) return kFailed;
  collector_ = std::make_unique<record::Collector>(node_.directory, node_.path);
  builder_ = std::make_unique<capture::PacketBuilder>(node_.directory.devices(),
                                                      options_.snaplen == 0 ? UINT32_MAX : options_.snaplen,
                                                      [this](const auto& packet) { write(packet); });
  begun_ = wall_clock_ns();
  to_wall_clock_ = static_cast<int64_t>(begun_) - now_ns();
  const RecordWish wish{kRecordPackets, options_.snaplen == 0 ? RecordWish::kWhole : options_.snaplen,
                        static_cast<uint16_t>(options_.ring_mib)};
  if (const int error = add_instrument(node_.directory, node_.path, wish, &index_); error != 0) {
    *problem = too_many_instruments();
    return kFailed;
  }
  for (const int64_t until = now_ns() + kBeginning; !collector_->has_all() && now_ns() < until;) {
    take_until(0);
    usleep(1000);
  }
  return 0;
}

void Capture::write(const capture::CapturedPacket& packet) {
  if (is_over()) return;
  ++packets_;
  const auto time = static_cast<uint64_t>(packet.time + to_wall_clock_);
  if (!options_.file.empty()) return out_.add(time, packet.frame, packet.length);
  const uint64_t second = time / 1'000'000'000;
  std::printf("%02u:%02u:%02u.%09u %s\n", static_cast<unsigned>(second / 3600 % 24),
              static_cast<unsigned>(second / 60 % 60), static_cast<unsigned>(second % 60),
              static_cast<unsigned>(time % 1'000'000'000), capture::packet_text(packet).c_str());
}

void Capture::take_until(int64_t time) {
  collector_->collect(time,
                      [this](uint32_t ring, const record::RingOwner&, std::span<const std::byte> bytes) {
                        // What a process has written for an instrument that is gone is not of this capture.
                        record::Head head;
                        if (bytes.size() < sizeof head) return;
                        std::memcpy(&head, bytes.data(), sizeof head);
                        if (head.time + to_wall_clock_ >= static_cast<int64_t>(begun_))
                          builder_->take(ring, bytes);
                        // A reader of a pipe that is slow is waited for: meanwhile the rings go on, and what
                        // is lost is counted.
                        if (out_.waiting() > capture::CaptureFile::kMuch && error_ == 0)
                          error_ = out_.flush();
                      });
  const int error = options_.file.empty() ? (std::fflush(stdout) != 0 ? errno : 0) : out_.flush();
  if (error_ == 0) error_ = error;
  if (count_instruments(node_.directory) == 1) collector_->remove_finished();
}

int Capture::start_program() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals_, number);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals_, &before);
  signal(SIGPIPE, SIG_IGN);
  if (options_.program.empty()) {
    std::fprintf(stderr, "verbena: capturing on the node %s\n", node_.path.c_str());
    return 0;
  }
  const pid_t child = start(options_.program, node_.environment, options_.file == "-", before);
  if (child < 0) return failed(std::string("cannot start a process: ") + std::strerror(errno));
  child_ = child;
  return 0;
}

// For kPause at most. -1: none has come.
int Capture::wait_for_signal() {
  const timespec pause{0, kPause};
  return sigtimedwait(&signals_, nullptr, &pause);
}

// Has the program ended, or has `signal` asked a capture without one to end?
bool Capture::has_ended(int signal) {
  const bool asks = signal == SIGTERM || signal == SIGHUP;
  if (options_.program.empty()) return asks || signal == SIGINT;
  // The signals of a terminal reach the program as well, and it decides what they mean.
  if (asks) kill(child_, signal);
  if (waitpid(child_, &status_, WNOHANG) == 0) return false;
  child_ = 0;
  return true;
}

// Until a signal comes, the program ends, or enough is captured. A program goes on if nothing can be written.
void Capture::follow() {
  const int64_t end =
      options_.seconds > 0 ? now_ns() + static_cast<int64_t>(options_.seconds * 1e9) : kEndOfTime;
  while (!(child_ != 0 ? has_enough() : is_over()) && now_ns() < end) {
    const int number = wait_for_signal();
    take_until(now_ns() - kHoldBack);
    if (has_ended(number)) break;
  }
}

// Of a program that still runs the options have ended the capture: it is to end as well, as with
// perf-stat(1), --timeout. Returns the exit status; 0 if that signal has ended it.
int Capture::end_program() {
  const bool is_early = child_ != 0;
  if (is_early) kill(child_, SIGTERM);
  while (child_ != 0) has_ended(wait_for_signal());
  if (!WIFSIGNALED(status_)) return WEXITSTATUS(status_);
  return is_early && WTERMSIG(status_) == SIGTERM ? 0 : 128 + WTERMSIG(status_);
}

int Capture::end() {
  take_until(kEndOfTime);
  const bool is_last = count_instruments(node_.directory) == 1;
  remove_instrument(node_.directory, node_.path, index_);
  const uint64_t lost = collector_->lost() + builder_->incomplete();
  if (!options_.file.empty() && error_ == 0)
    error_ = out_.end({begun_, wall_clock_ns(), packets_ + lost, lost});
  if (is_last) collector_->remove_all();
  std::fprintf(stderr, "verbena: %llu packets captured, %llu records lost\n",
               static_cast<unsigned long long>(packets_), static_cast<unsigned long long>(lost));
  if (lost != 0)
    std::fprintf(stderr,
                 "verbena: what was lost was overwritten before it was read: --ring or --snaplen helps\n");
  if (collector_->damaged() != 0)
    std::fprintf(stderr, "verbena: the records of %u processes are damaged\n", collector_->damaged());
  return error_ == 0 || error_ == EPIPE ? 0 : failed(options_.file + ": " + std::strerror(error_));
}

int Capture::run() {
  std::string problem;
  if (begin(&problem) != 0) return failed(problem);
  int status = start_program();
  if (status == 0) follow();
  const int ended = end();
  if (status == 0) status = end_program();
  return status != 0 ? status : ended;
}

int capture_on_node(const CaptureOptions& options) {
  if (options.extcap.asks()) return answer_extcap(options.extcap);
  return Capture(options).run();
}

}  // namespace

void add_capture(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("capture", "show the node's traffic as RoCE v2 packets, for Wireshark and tshark");
  command->footer(
      "The packets are those that adapters would have sent, with all headers, cut at the path MTU, with\n"
      "acknowledgements, NAKs and responses; the bytes are those that were moved. Frames of raw packet queue "
      "pairs\n"
      "are shown as they are. Processes that run already are captured from now on. Ends when the program\n"
      "ends, at ^C, or as the options say: a program that still runs then gets SIGTERM.\n"
      "The exit status is the program's; 0 if that SIGTERM has ended it.\n"
      "Each process keeps its newest records in memory (--ring); what is overwritten before it is read is "
      "counted,\n"
      "on standard error and in the statistics of the file. In Wireshark's list of interfaces: see\n"
      "docs/DEBUGGING.md.\n\n"
      "Examples:\n"
      "  verbena capture -w out.pcapng -- ib_send_bw -F          one program\n"
      "  verbena capture -w - | tshark -r -                      everything on the node, live\n"
      "  verbena capture -c 20                                   the next 20 packets, as text");
  command->prefix_command();
  auto options = std::make_shared<CaptureOptions>();
  add_node_options(*command, options->node);
  command->add_option("-w,--write", options->file, "write pcapng to this file; -: to standard output")
      ->type_name("FILE");
  command->add_option("-s,--snaplen", options->snaplen, "keep so many bytes of each packet; 0: all")
      ->type_name("BYTES")
      ->check(CLI::Range(0u, 0xffffffu));
  check_whole_number(
      *command->add_option("-c,--count", options->count, "end after so many packets")->type_name("N"));
  check_seconds(
      *command->add_option("--seconds", options->seconds, "end after so many seconds")->type_name("N"));
  add_ring_option(*command, &options->ring_mib);
  add_extcap_options(*command, options->extcap);
  command->callback([command, options, &line] {
    keep_node(*command, options->node);
    check_network_options(options->node);
    options->program = program_of(*command, line);
    check_ring_option("capture", options->ring_mib);
    if (options->snaplen != 0 && options->snaplen < kShortestSnap)
      throw UsageError{"capture: --snaplen: 0, or at least " + std::to_string(kShortestSnap)};
    if (!options->extcap.fifo.empty()) options->file = options->extcap.fifo;
    line.action = [options] { return capture_on_node(*options); };
  });
}

}  // namespace verbena::tool
