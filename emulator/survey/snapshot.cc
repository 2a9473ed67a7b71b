// SPDX-License-Identifier: BSD-2-Clause
#include "survey/snapshot.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>

#include "adapter/clock.h"
#include "adapter/layout.h"
#include "adapter/segment.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/segment_passing.h"
#include "wire/net_address.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(2);  // for all processes of a node together
constexpr int kPatiencePerProcess = 500;             // milliseconds
constexpr auto kSecondLook =
    std::chrono::milliseconds(100);  // until a CQ that nobody polls is looked at again
constexpr uint32_t kPsnMask = 0xffffff;
constexpr int kTries = 16;  // to read an entry that keeps changing

// Loads a field of shared memory that its owner may change at the same time, a plain field included.
template <typename T>
T acquire(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
}
template <typename T>
T acquire(const std::atomic<T>& field) {
  return field.load(std::memory_order_acquire);
}

// How far a counter is ahead of another. They are read one after the other, so `ahead` may seem behind: 0.
uint64_t distance(uint64_t ahead, uint64_t behind) { return ahead > behind ? ahead - behind : 0; }

// The address of the peer of a queue pair whose path is by frames (engine/queue_pair/shared_path.h).
wire::NetAddress destination_of(const SharedQp& qp) {
  uint32_t words[4];
  for (size_t i = 0; i < std::size(words); ++i) words[i] = acquire(qp.path_words[i]);
  wire::NetAddress address;
  std::memcpy(address.bytes.data(), words, sizeof words);
  return address;
}

bool is_own(const DeviceTable& devices, const wire::NetAddress& address) {
  for (uint32_t i = 0; i < std::min(devices.count, kMaxDevices); ++i)
    for (const PortDescription& port : devices.devices[i].ports)
      for (uint32_t j = 0; j < std::min(port.gid_count, kMaxGids); ++j)
        if (port.gids[j].raw == address.bytes) return true;
  return false;
}

PeerSnapshot find_peer(const NodeDirectory& directory, const SharedQp& qp) {
  PeerSnapshot peer;
  peer.qpn = acquire(qp.dest_qpn);
  peer.slot = acquire(qp.dest_slot);
  if (peer.qpn == 0 || peer.slot >= kMaxSlots) return peer;
  uint32_t generation = acquire(qp.dest_slot_generation);
  // The peer is reached by frames: dest_slot is then the queue pair's own slot.
  if (acquire(qp.dest_index) == kRemoteIndex) {
    const wire::NetAddress address = destination_of(qp);
    if (directory.devices().network.enabled != 0 && !is_own(directory.devices(), address)) {
      peer.address = address.text();
      return peer;
    }
    QpnEntry found;
    if (!directory.find_qpn(peer.qpn, &found)) return peer;
    peer.slot = found.slot;
    generation = acquire(directory.slot(found.slot).generation);
  }
  if (!directory.alive(peer.slot, generation)) return peer;
  const Slot& slot = directory.slot(peer.slot);
  peer.pid = acquire(slot.pid);
  peer.program = printable(slot.program, sizeof slot.program);
  return peer;
}

// The owner's record, or that of the requester for a completion that is not polled yet.
ErrorSnapshot last_error(const SharedQp& qp) {
  ErrorSnapshot error;
  error.time = acquire(qp.error_time);
  error.wr_id = acquire(qp.error_wr_id);
  ErrorWord word = ErrorWord::unpack(acquire(qp.error));
  error.has_wr_id = error.time != 0;
  if (const uint64_t later = acquire(qp.receive_error_time); later > error.time) {
    error.time = later;
    error.has_wr_id = false;
    word = ErrorWord::unpack(acquire(qp.receive_error));
  }
  error.status = word.status;
  error.vendor_err = word.vendor_err;
  error.receive = word.receive;
  return error;
}

uint64_t rnr_since(const SharedQp& qp, uint32_t state) {
  const bool sends = state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  const uint64_t since = acquire(qp.rnr_since);
  return sends && since >= acquire(qp.state_since) && acquire(qp.rnr_requests_out) == acquire(qp.requests_out)
             ? since
             : 0;
}

QpSnapshot copy_qp(const NodeDirectory& directory, const SharedQp& qp) {
  QpSnapshot copy;
  copy.device = acquire(qp.device);
  copy.port = QpPath::unpack(acquire(qp.path)).port;
  copy.qpn = acquire(qp.qpn);
  copy.type = acquire(qp.type);
  copy.state = ResponderState::unpack(acquire(qp.responder_state)).state;
  copy.pd = acquire(qp.pd);
  copy.srq = acquire(qp.srq);
  copy.rq_psn = acquire(qp.expected_psn) & kPsnMask;
  copy.sq_psn = acquire(qp.send_psn) & kPsnMask;
  copy.send_cq = acquire(qp.send_cq);
  copy.recv_cq = acquire(qp.recv_cq);
  copy.peer = find_peer(directory, qp);
  const uint64_t completed = acquire(qp.sq_completed);
  copy.sends_outstanding = distance(acquire(qp.sq_posted), completed);
  const uint64_t taken = acquire(qp.rq_taken);
  copy.receives_posted = distance(acquire(qp.rq_posted), taken);
  const RequestCounts requests = requests_of(qp);
  copy.requests_out = requests.requests_out;
  copy.bytes_out = requests.bytes_out;
  copy.requests_in = requests.requests_in;
  copy.bytes_in = requests.bytes_in;
  copy.rnr_naks = acquire(qp.rnr_naks);
  copy.retries = acquire(qp.retries);
  copy.dropped = acquire(qp.dropped);
  copy.lost = acquire(qp.lost);
  copy.qkey_violations = acquire(qp.qkey_violations);
  copy.receives_taken = taken;
  copy.state_since = acquire(qp.state_since);
  copy.rnr_since = rnr_since(qp, copy.state);
  copy.rnr_is_endless = acquire(qp.rnr_is_endless) != 0;
  copy.traffic = traffic_of(qp);
  copy.error = last_error(qp);
  return copy;
}

// A consistent copy of a QP: it was neither destroyed nor moved to another state meanwhile. False: there is
// none.
bool read_qp(const NodeDirectory& directory, const SharedQp& qp, QpSnapshot* out) {
  for (int i = 0; i < kTries; ++i) {
    const uint32_t incarnation = acquire(qp.incarnation);
    const uint64_t responder = acquire(qp.responder_state);
    if (acquire(qp.in_use) == 0) return false;
    *out = copy_qp(directory, qp);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (acquire(qp.incarnation) == incarnation && acquire(qp.responder_state) == responder &&
        acquire(qp.in_use) != 0)
      return true;
  }
  return false;
}

bool read_cq(const SharedCq& cq, uint32_t index, CqSnapshot* out) {
  const uint32_t alive = acquire(cq.alive);
  const uint32_t generation = acquire(cq.ring_generation);
  const SharedCqRing& ring = cq.rings[generation & 1];
  const uint32_t order = acquire(ring.order);
  if (alive == 0 || order > 31) return false;
  const uint64_t head = acquire(ring.head);
  *out = {.index = index,
          .context = acquire(cq.context),
          .capacity = uint64_t{1} << order,
          .entries = std::min(distance(acquire(ring.tail), head), uint64_t{1} << order),
          .armed = static_cast<uint32_t>(Arming::unpack(acquire(cq.armed)).state),
          .overrun = acquire(cq.overrun) != 0,
          .events = acquire(cq.raised),
          .events_read = acquire(cq.events_read)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return acquire(cq.alive) == alive;
}

// Would nothing wake a thread that waits for the CQ's event?
bool seems_asleep(const SharedCq& cq, const CqSnapshot& copy) {
  return acquire(cq.channel) != 0 && copy.entries != 0 && copy.armed == static_cast<uint32_t>(Armed::kNo) &&
         copy.events == copy.events_read;
}

// A program that polls such a CQ is awake: the CQ is looked at again.
void find_sleepers(const SegmentView& view, Clock::time_point deadline, ProcessSnapshot* process) {
  std::vector<std::pair<CqSnapshot*, uint64_t>> suspects;
  const auto head_of = [](const SharedCq& cq) {
    return acquire(cq.rings[acquire(cq.ring_generation) & 1].head);
  };
  for (CqSnapshot& copy : process->cqs)
    if (const SharedCq* cq = view.cq(copy.index); cq != nullptr && seems_asleep(*cq, copy))
      suspects.emplace_back(&copy, head_of(*cq));
  if (suspects.empty() || Clock::now() + kSecondLook > deadline) return;
  std::this_thread::sleep_for(kSecondLook);
  for (const auto& [copy, head] : suspects) {
    const SharedCq& cq = *view.cq(copy->index);
    CqSnapshot again;
    copy->is_asleep = read_cq(cq, copy->index, &again) && seems_asleep(cq, again) && head_of(cq) == head;
  }
}

bool read_srq(const SharedSrq& srq, uint32_t index, SrqSnapshot* out) {
  const uint32_t incarnation = acquire(srq.incarnation);
  const uint32_t order = acquire(srq.order) + acquire(srq.growths);
  if (acquire(srq.in_use) == 0 || order > 31) return false;
  const uint64_t head = acquire(srq.head);
  *out = {.index = index,
          .of_program = acquire(srq.srqn) != 0,
          .is_xrc = acquire(srq.xrcd) != 0,
          .pd = acquire(srq.pd),
          .cq = acquire(srq.cq),
          .capacity = uint64_t{1} << order,
          .max_sge = acquire(srq.max_sge),
          .posted = std::min(distance(acquire(srq.posted), head), uint64_t{1} << order),
          .limit = acquire(srq.limit)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return acquire(srq.incarnation) == incarnation && acquire(srq.in_use) != 0;
}

bool read_mr(const SharedMr& mr, uint32_t index, MrSnapshot* out) {
  const uint32_t valid = acquire(mr.valid);
  if (valid == 0 || mr.kind == KeyKind::kWindow1 || mr.kind == KeyKind::kWindow2) return false;
  const auto tag = static_cast<uint8_t>(valid);
  *out = {.index = index,
          .lkey = MemoryKey{index, false, tag}.pack(),
          .rkey = MemoryKey{index, true, tag}.pack(),
          .pd = acquire(mr.pd),
          .access = acquire(mr.access),
          .iova = acquire(mr.iova),
          .address = acquire(mr.address),
          .length = acquire(mr.length)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return acquire(mr.valid) == valid;
}

void read_listed(const SegmentView& view, ProcessSnapshot* process) {
  for (uint32_t i = 0; i < kMaxListed; ++i) {
    const ListedObject& entry = view.listed(i);
    const ListedKind kind = acquire(entry.kind);
    if (kind != ListedKind::kContext && kind != ListedKind::kDomain) continue;
    const uint32_t number = acquire(entry.number);
    const uint32_t context = acquire(entry.context);
    const uint32_t device = acquire(entry.device);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (acquire(entry.kind) != kind) continue;
    if (kind == ListedKind::kContext)
      process->contexts.push_back({.number = number, .device = device});
    else
      process->domains.push_back({.handle = number, .context = context, .device = device});
  }
}

void read_segment(const NodeDirectory& directory, const SegmentView& view, ProcessSnapshot* process) {
  read_listed(view, process);
  const SegmentHeader& header = view.header();
  const uint32_t qps = std::min(acquire(header.qp_high_water), kMaxQpsPerProcess);
  const uint32_t cqs = std::min(acquire(header.cq_high_water), kMaxCqsPerProcess);
  const uint32_t srqs = std::min(acquire(header.srq_high_water), kMaxSrqsPerProcess);
  const uint32_t mrs = std::min(acquire(header.mr_high_water), kMaxMrsPerProcess);
  for (uint32_t i = 0; i < qps; ++i) {
    QpSnapshot copy;
    const SharedQp* qp = view.qp(i);
    if (qp != nullptr && read_qp(directory, *qp, &copy)) process->qps.push_back(copy);
  }
  for (uint32_t i = 0; i < cqs; ++i) {
    CqSnapshot copy;
    const SharedCq* cq = view.cq(i);
    if (cq != nullptr && read_cq(*cq, i, &copy)) process->cqs.push_back(copy);
  }
  for (uint32_t i = 0; i < srqs; ++i) {
    SrqSnapshot copy;
    const SharedSrq* srq = view.srq(i);
    if (srq != nullptr && read_srq(*srq, i, &copy)) process->srqs.push_back(copy);
  }
  for (uint32_t i = 0; i < mrs; ++i) {
    MrSnapshot copy;
    const SharedMr* mr = view.mr(i);
    if (mr != nullptr && read_mr(*mr, i, &copy)) process->mrs.push_back(copy);
  }
}

std::string describe_error(int error) {
  if (error == ETIMEDOUT) return "not answering (stopped, or in a debugger?)";
  if (error == ENOENT || error == ECONNREFUSED) return "going away";
  if (error == EPROTO) return "its segment is damaged, or another version's";
  return std::strerror(error);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 1, kPatiencePerProcess));
}

void look_at_segment(const NodeDirectory& directory, const std::string& node, Clock::time_point deadline,
                     bool twice, ProcessSnapshot* process) {
  PassedSegment passed;
  int error = ask_for_segment(slot_address(directory, node, process->slot, process->generation),
                              milliseconds_until(deadline), &passed);
  if (passed.memory_fd >= 0) close(passed.memory_fd);  // the program's memory is not read
  if (error == 0) {
    PeerSegment segment;
    error = segment.map(passed.segment_fd, directory.header().node_id, process->slot, process->generation,
                        /*writable=*/false);
    if (error == 0) {
      read_segment(directory, segment.view(), process);
      if (twice) find_sleepers(segment.view(), deadline, process);
    }
  }
  if (passed.segment_fd >= 0) close(passed.segment_fd);
  if (error != 0) process->problem = describe_error(error);
}

}  // namespace

std::string printable(const char* text, size_t size) {
  std::string result(text, strnlen(text, size));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}

namespace {

// `whole`: with what look_at_objects() leaves out.
NodeSnapshot look(const std::string& path, bool whole) {
  NodeSnapshot node;
  node.path = path;
  NodeDirectory directory;
  if (const int error = directory.open(directory_path(path).c_str()); error != 0) {
    node.problem = error == EPROTO ? "made by another version of Verbena, or damaged" : std::strerror(error);
    return node;
  }
  node.devices = directory.devices();
  for (DeviceDescription& device : node.devices.devices) device.limits.profile.back() = 0;
  node.ports_down = acquire(directory.header().ports_down);
  for (uint32_t i = 0; i < kPortPlaces; ++i) {
    node.stray_datagrams[i] = acquire(directory.header().stray_datagrams[i]);
    node.qkey_violations[i] = acquire(directory.header().qkey_violations[i]);
    node.pkey_violations[i] = acquire(directory.header().pkey_violations[i]);
    for (size_t j = 0; j < node.past[i].size(); ++j)
      node.past[i][j] = acquire(directory.header().past_counters[i][j]);
    for (size_t j = 0; j < node.port_counts[i].size(); ++j)
      node.port_counts[i][j] = acquire(directory.header().port_counts[i][j]);
  }
  for (size_t i = 0; i < kPacketDrops; ++i)
    node.packet_drops[i] = acquire(directory.header().packet_drops[i]);
  const auto deadline = Clock::now() + kPatience;
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const Slot& slot = directory.slot(i);
    const SlotState state = acquire(slot.state);
    if (state == SlotState::kFree) continue;
    ProcessSnapshot process;
    process.slot = i;
    process.generation = acquire(slot.generation);
    process.pid = acquire(slot.pid);
    process.program = printable(slot.program, sizeof slot.program);
    if (!directory.occupied(i))
      process.problem = "dead, not yet cleaned up";
    else if (state == SlotState::kLive)
      look_at_segment(directory, path, deadline, whole, &process);
    else
      process.problem = "starting";
    node.processes.push_back(std::move(process));
  }
  node.taken_at = wall_clock_ns();
  look_at_cm(directory, &node);
  if (whole) look_at_connections(&node);
  return node;
}

}  // namespace

NodeSnapshot look_at_node(const std::string& path) { return look(path, true); }
NodeSnapshot look_at_objects(const std::string& path) { return look(path, false); }

std::vector<std::string> nodes_in(const std::string& folder) {
  std::vector<std::string> nodes;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    if (!i->path().filename().string().starts_with(".") && fs::exists(directory_path(i->path().string())))
      nodes.push_back(i->path().string());
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace verbena
