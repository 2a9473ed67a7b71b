// SPDX-License-Identifier: BSD-2-Clause
//
// Each process has a row for each thread, with what it has called, and two for each queue pair: the send
// queue, where a request lasts from its posting, or from the end of the one before, to its own end; and the
// receive queue, where a message lasts from its arrival to the poll that takes it. An arrow leads from a SEND
// to its receive, and from a message of the connection manager to the one that replies to it.
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tool/timeline.h"

namespace verbena::tool {
namespace {

using record::Step;
using record::TimelineRecord;

// us. The length of what is a moment.
constexpr double kMoment = 0.05;
// Rows of queue pairs come after those of threads.
constexpr uint64_t kFirstQueue = 1ull << 32;

uint64_t send_row(uint32_t qpn) { return kFirstQueue + 2 * uint64_t{qpn}; }
uint64_t receive_row(uint32_t qpn) { return send_row(qpn) + 1; }

bool consumes_receive(uint8_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Does the record say that a message has come to a receive request?
bool arrives(const TimelineRecord& record) {
  return consumes_receive(record.opcode) &&
         (record.step == Step::kSmallRequest ||
          (record.step == Step::kResponse && static_cast<Reply>(record.status) == Reply::kAcknowledged));
}

class Writer {
 public:
  explicit Writer(const Timeline& timeline) : timeline_(timeline) {
    if (!timeline.events.empty()) begin_ = timeline.events.front().record.head.time;
  }

  std::string write() {
    match();
    match_management();
    out_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    for (const TimelineEvent& event : timeline_.events) take(event);
    name_rows();
    if (out_.ends_with(",\n")) out_.resize(out_.size() - 2);
    return out_ + fmt::format("\n],\"otherData\":{{\"records lost\":{}}}}}\n", timeline_.lost);
  }

 private:
  struct Posted {
    double time;
    uint64_t wr_id;
  };
  // A message that has come to a queue pair, and the number of its arrow.
  struct Arrival {
    double time;
    uint32_t length;
    uint64_t flow;
  };
  struct Queue {
    std::deque<Posted> posted;
    double last_end = 0;
  };

  double time_of(const TimelineRecord& record) const {
    return static_cast<double>(record.head.time - begin_) / 1000;
  }

  void slice(uint32_t process, uint64_t row, double begin, double end, const std::string& name,
             const TimelineRecord& record) {
    rows_.insert({process, row});
    out_ += fmt::format(
        "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{},\"args\":{{\"what\":{}"
        ","
        "\"QP\":\"{:#08x}\"}}}},\n",
        pid(process), row, begin, std::max(end - begin, 0.001), nlohmann::json(name).dump(),
        nlohmann::json(step_text(record)).dump(), record.qpn);
  }
  void flow(char phase, uint32_t process, uint64_t row, double time, uint64_t id) {
    out_ += fmt::format(
        "{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"id\":{},\"cat\":\"message\",\"name\":"
        "\"message\"{}}},\n",
        phase, pid(process), row, time, id, phase == 'f' ? ",\"bp\":\"e\"" : "");
  }
  int32_t pid(uint32_t process) const { return timeline_.processes[process].pid; }

  void match();
  void match_management();
  void take(const TimelineEvent& event);
  void end_request(const TimelineEvent& event, double time);
  void receive(const TimelineEvent& event, double time);
  void name_rows();

  const Timeline& timeline_;
  int64_t begin_ = 0;
  std::string out_;
  uint64_t next_flow_ = 1;
  std::set<std::pair<uint32_t, uint64_t>> rows_;
  std::map<uint32_t, Queue> send_queues_, receive_queues_;  // by number of the queue pair
  std::map<uint32_t, std::deque<Arrival>> polled_;  // of each poll of a receive, by number of the queue pair
  std::map<uint32_t, std::vector<uint64_t>> leaving_;  // flows, by number of the sending queue pair
  // Of messages of the connection manager: flows that begin ('s') or end ('f') there.
  std::multimap<const TimelineEvent*, std::pair<char, uint64_t>> replies_;
};

// Which message is it that a poll takes? Those of a queue pair are polled in the order in which they come. A
// record of the arrival may be later than that of the poll: the peer writes it when the completion is there
// already.
void Writer::match() {
  constexpr double kLate = 1000;  // us
  std::map<uint32_t, std::deque<Arrival>> arrivals;
  for (const TimelineEvent& event : timeline_.events) {
    const TimelineRecord& record = event.record;
    const bool small = record.step == Step::kSmallRequest;
    if (arrives(record))
      arrivals[small ? record.peer_qpn : record.qpn].push_back(
          {time_of(record), record.length, next_flow_++});
  }
  next_flow_ = 1;
  for (const TimelineEvent& event : timeline_.events) {
    const TimelineRecord& record = event.record;
    if (record.step != Step::kPollReceive) continue;
    std::deque<Arrival>& queue = arrivals[record.qpn];
    Arrival found{0, 0, 0};
    // 40 bytes more: a datagram, with space for its GRH. What does not fit is not the message.
    const auto fits = [&](const Arrival& arrival) {
      return arrival.length == record.length || arrival.length + 40 == record.length;
    };
    while (!queue.empty() && !fits(queue.front()) && queue.front().time < time_of(record)) queue.pop_front();
    if (!queue.empty() && fits(queue.front()) && queue.front().time < time_of(record) + kLate) {
      found = queue.front();
      queue.pop_front();
    }
    polled_[record.qpn].push_back(found);
  }
}

// A reply has the transaction ID of what it replies to: REQ, REP, RTU; DREQ, DREP; REJ and MRA of any (the
// kernel's cm.c, cm_format_mad_hdr()). A REQ and a DREQ of one connection may have the same.
void Writer::match_management() {
  constexpr uint8_t kReq = 0x10, kMra = 0x11, kDreq = 0x15, kSidrReq = 0x17, kLap = 0x19;  // attribute IDs
  uint64_t next = 1ull << 40;                       // flows of messages have smaller numbers
  std::map<uint64_t, const TimelineEvent*> before;  // by transaction
  for (const TimelineEvent& event : timeline_.events) {
    const TimelineRecord& record = event.record;
    if (record.step != Step::kManagement) continue;
    const TimelineEvent*& last = before[record.wr_id];
    const uint8_t kind = record.opcode;
    const bool asks = kind == kReq || kind == kDreq || kind == kSidrReq || kind == kLap;
    if (!asks && last != nullptr && last->record.opcode != kind) {  // the same: it is sent again
      replies_.insert({last, {'s', next}});
      replies_.insert({&event, {'f', next++}});
    }
    if (kind != kMra) last = &event;
  }
}

void Writer::take(const TimelineEvent& event) {
  const TimelineRecord& record = event.record;
  const double time = time_of(record);
  switch (record.step) {
    case Step::kPostSend:
      send_queues_[record.qpn].posted.push_back({time, record.wr_id});
      break;
    case Step::kRequestEnd:
      return end_request(event, time);
    case Step::kSmallRequest:
      if (arrives(record)) leaving_[record.qpn].push_back(next_flow_++);
      end_request(event, time);
      break;
    case Step::kResponse:
      if (arrives(record)) leaving_[record.peer_qpn].push_back(next_flow_++);
      if (static_cast<Reply>(record.status) == Reply::kAcknowledged) return;
      break;
    case Step::kPollReceive:
      receive(event, time);
      break;
    default:
      break;
  }
  slice(event.process, record.thread, time, time + kMoment, step_text(record), record);
  const auto [from, to] = replies_.equal_range(&event);
  for (auto arrow = from; arrow != to; ++arrow)
    flow(arrow->second.first, event.process, record.thread, time, arrow->second.second);
}

void Writer::end_request(const TimelineEvent& event, double time) {
  const TimelineRecord& record = event.record;
  Queue& queue = send_queues_[record.qpn];
  double begin = time - kMoment;
  // Requests end in the order of their posting; a record may be lost.
  const auto own = std::ranges::find(queue.posted, record.wr_id, &Posted::wr_id);
  if (own != queue.posted.end()) {
    begin = own->time;
    queue.posted.erase(queue.posted.begin(), own + 1);
  }
  begin = std::max(begin, queue.last_end);
  queue.last_end = std::max(time, begin + 0.001);
  slice(event.process, send_row(record.qpn), begin, queue.last_end,
        fmt::format("{} {}", operation_name(record.opcode), record.length), record);
  for (const uint64_t id : std::exchange(leaving_[record.qpn], {}))
    flow('s', event.process, send_row(record.qpn), begin, id);
}

void Writer::receive(const TimelineEvent& event, double time) {
  const TimelineRecord& record = event.record;
  Queue& queue = receive_queues_[record.qpn];
  std::deque<Arrival>& polled = polled_[record.qpn];
  const Arrival arrival = polled.front();
  polled.pop_front();
  const double came = arrival.flow != 0 ? std::min(arrival.time, time) : time - kMoment;
  const double begin = std::max(came, queue.last_end);
  queue.last_end = std::max(time, begin + 0.001);
  slice(event.process, receive_row(record.qpn), begin, queue.last_end, fmt::format("RECV {}", record.length),
        record);
  if (arrival.flow != 0) flow('f', event.process, receive_row(record.qpn), begin, arrival.flow);
}

void Writer::name_rows() {
  const auto name = [this](const char* kind, uint32_t process, uint64_t row, const std::string& text) {
    out_ += fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"name\":{}}}}},\n",
                        pid(process), row, kind, nlohmann::json(text).dump());
  };
  for (uint32_t i = 0; i < timeline_.processes.size(); ++i)
    name("process_name", i, 0, timeline_.processes[i].program);
  for (const auto& [process, row] : rows_) {
    const auto qpn = static_cast<uint32_t>((row - kFirstQueue) / 2);
    if (row >= kFirstQueue)
      name("thread_name", process, row,
           fmt::format("QP {:#08x} {}", qpn, row == send_row(qpn) ? "send queue" : "receive queue"));
    else
      name("thread_name", process, row, fmt::format("thread {}", row));
  }
}

}  // namespace

std::string timeline_as_json(const Timeline& timeline) { return Writer(timeline).write(); }

}  // namespace verbena::tool
