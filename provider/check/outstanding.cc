// SPDX-License-Identifier: BSD-2-Clause
#include "check/outstanding.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "check/operations.h"
#include "check/shadows.h"

namespace verbena::check {
namespace {

constexpr uint64_t kLongestSum = 1 << 20;  // bytes of a request that are looked at

bool intersects(uintptr_t begin, uintptr_t end, uintptr_t other, uint64_t length) {
  return length != 0 && other < end && begin < other + length;
}

struct StackBounds {
  uintptr_t low = 0;
  uintptr_t high = 0;
};

const StackBounds& own_stack() {
  thread_local StackBounds bounds;
  if (bounds.high != 0) return bounds;
  pthread_attr_t attr;
  void* low = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attr) == 0) {
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_destroy(&attr);
  }
  bounds.low = reinterpret_cast<uintptr_t>(low);
  bounds.high = std::max<uintptr_t>(bounds.low + size, 1);
  return bounds;
}

constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;

uint64_t mix_word(uint64_t sum, const char* bytes) {
  uint64_t word;
  memcpy(&word, bytes, 8);
  sum = (sum ^ word) * kFactor;
  return sum ^ sum >> 32;
}

// Four sums beside each other, so that one multiplication does not wait for the other.
uint64_t mix(uint64_t sum, const char* bytes, size_t length) {
  uint64_t sums[4] = {sum, ~sum, sum + kFactor, sum ^ kFactor};
  for (; length >= 32; bytes += 32, length -= 32)
    for (size_t i = 0; i < 4; ++i) sums[i] = mix_word(sums[i], bytes + 8 * i);
  for (const uint64_t each : sums) sum = (sum ^ each) * kFactor;
  for (; length >= 8; bytes += 8, length -= 8) sum = mix_word(sum, bytes);
  for (; length != 0; ++bytes, --length) sum = (sum ^ static_cast<unsigned char>(*bytes)) * 0x100000001b3u;
  return sum;
}

// Adds [address, address + length) to `sum`, by a system call: the memory may be gone. False: it is.
bool add_memory(uint64_t& sum, uintptr_t address, uint64_t length) {
  static char buffer[16384];  // under the model's lock
  while (length != 0) {
    const size_t part = std::min<uint64_t>(length, sizeof buffer);
    const iovec local = {buffer, part};
    const iovec remote = {reinterpret_cast<void*>(address), part};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(part)) return false;
    sum = mix(sum, buffer, part);
    address += part;
    length -= part;
  }
  return true;
}

bool sum_of(const Request& request, uint64_t* sum) {
  *sum = 0;
  uint64_t left = kLongestSum;
  for (const Range& range : request.ranges) {
    const uint64_t part = std::min<uint64_t>(range.length, left);
    if (range.memory == 0 || !add_memory(*sum, range.memory, part)) return false;
    left -= part;
  }
  return !request.ranges.empty();
}

// Calls `visitor(queue, qp)` for the queues that may still move bytes; qp is null for an SRQ. Until it
// returns true.
template <typename Visitor>
void for_each_queue(Visitor visitor) {
  for (Object* const object : all_objects()) {
    if (!object->alive || is_parents(*object)) continue;
    if (object->kind == Kind::kQp) {
      auto& qp = static_cast<QueuePair&>(*object);
      if (qp.sends.empty() && qp.receives.requests.empty()) continue;
      if (visitor(qp.sends, &qp) || visitor(qp.receives.requests, &qp)) return;
    } else if (object->kind == Kind::kSrq) {
      if (visitor(static_cast<SharedQueue*>(object)->receives.requests, nullptr)) return;
    }
  }
}

template <typename Matches>
const Request* find_request(Matches matches) {
  const Request* found = nullptr;
  for_each_queue([&](const std::deque<Request>& queue, QueuePair* qp) {
    const auto place = std::find_if(queue.begin(), queue.end(), matches);
    if (place == queue.end() || (qp != nullptr && is_flushing(*qp))) return false;
    found = &*place;
    return true;
  });
  return found;
}

// Has the function returned whose local variable the request uses?
bool has_returned(const Request& request, const Stack& stack) {
  for (unsigned i = 0; i < stack.depth; ++i)
    if (stack.ends[i] == request.frame_end && stack.functions[i] == request.function) return false;
  return stack.depth < kStackDepth;  // else the frame may lie further out
}

bool uses_memory(const Request& request, uintptr_t begin, uintptr_t end) {
  return std::any_of(request.ranges.begin(), request.ranges.end(), [&](const Range& range) {
    return range.memory != 0 && intersects(begin, end, range.memory, range.length);
  });
}

// Do the two share bytes, through one region or two?
bool share_memory(const Request& one, const Request& other) {
  return std::any_of(one.ranges.begin(), one.ranges.end(), [&](const Range& range) {
    return range.memory != 0 && uses_memory(other, range.memory, range.memory + range.length);
  });
}

bool names(const Request& request, const Region& region) {
  return std::any_of(request.ranges.begin(), request.ranges.end(), [&](const Range& range) {
    return range.lkey == region.lkey && range.length != 0 &&
           find_region(region.context, range.lkey) == &region;
  });
}

// May another request of `queue` write bytes of `request`?
bool is_written_by(const std::deque<Request>& queue, const Request& request) {
  return std::any_of(queue.begin(), queue.end(), [&](const Request& other) {
    return &other != &request && writes_memory(other.opcode) && share_memory(request, other);
  });
}

bool is_written(const QueuePair& qp, const Request& request) {
  return is_written_by(qp.sends, request) || is_written_by(qp.receives.requests, request) ||
         (qp.srq != nullptr && is_written_by(qp.srq->receives.requests, request));
}

}  // namespace

const SendOperation* operation_of(int opcode) {
  return opcode < 0 ? nullptr : find_send_operation(static_cast<ibv_wr_opcode>(opcode));
}

const char* kind_of(const Request& request) {
  if (request.opcode == kReceive) return "receive";
  const SendOperation* const operation = operation_of(request.opcode);
  return operation != nullptr ? operation->name : "request";
}

bool reads_memory(int opcode) {
  const SendOperation* const operation = operation_of(opcode);
  return operation != nullptr && operation->sges == SgeUse::gather;
}

bool writes_memory(int opcode) {
  const SendOperation* const operation = operation_of(opcode);
  return opcode == kReceive || (operation != nullptr && operation->sges == SgeUse::scatter);
}

bool is_flushing(const QueuePair& qp) {
  return qp.type != IBV_QPT_XRC_RECV ? provider().is_flushing(qp.qp) : qp.failed;
}

const Request* find_use_of(const Region& region) {
  return find_request([&](const Request& request) { return names(request, region); });
}

const Request* find_use_of(uintptr_t begin, uintptr_t end) {
  return find_request([&](const Request& request) { return uses_memory(request, begin, end); });
}

bool may_be_written(uintptr_t begin, uintptr_t end) {
  return find_request([&](const Request& request) {
           return writes_memory(request.opcode) && uses_memory(request, begin, end);
         }) != nullptr;
}

const Request* find_overlap(const std::deque<Request>& queue, const Request& request) {
  for (const Request& other : queue)
    for (const Range& range : other.ranges)
      for (const Range& own : request.ranges)
        if (own.length != 0 && range.lkey == own.lkey &&
            intersects(own.begin, own.begin + own.length, range.begin, range.length))
          return &other;
  return nullptr;
}

uintptr_t memory_of(const ibv_context* context, uint64_t address, uint32_t lkey) {
  const Region* const region = find_region(context, lkey);
  if (region == nullptr || !region->alive) return 0;
  if (!region->has_range && (region->access & IBV_ACCESS_ON_DEMAND) != 0) return address;  // implicit ODP
  return region->has_range && region->memory != 0 ? region->memory + (address - region->begin) : 0;
}

bool peers_may_write(const ibv_context* context, uint32_t lkey) {
  const Region* const region = find_region(context, lkey);
  constexpr int kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  return region == nullptr || (region->access & kWrites) != 0;
}

void take_sum(const QueuePair& qp, Request& request) {
  if (!is_enabled(rule("send-buffer-changed")) || !reads_memory(request.opcode)) return;
  request.has_sum = !is_written_by(qp.sends, request) && sum_of(request, &request.sum);
}

void forget_sums(QueuePair& qp, const Request& receive) {
  const auto forget = [&](QueuePair& one) {
    for (Request& send : one.sends)
      if (send.has_sum && share_memory(send, receive)) send.has_sum = false;
  };
  if (qp.srq == nullptr) return forget(qp);
  for (QueuePair* const one : qp.srq->queue_pairs) forget(*one);
}

void forget_bytes(const Region& region) {
  for_each_queue([&](std::deque<Request>& queue, const QueuePair*) {
    for (Request& request : queue)
      if ((request.has_sum || request.has_pattern || request.shadow != nullptr) && names(request, region)) {
        request.has_sum = request.has_pattern = false;
        if (request.shadow != nullptr) request.shadow->abandoned = true;
      }
    return false;
  });
}

void learn_stack() { own_stack(); }

bool is_on_stack(uintptr_t begin, uint64_t length) {
  return intersects(own_stack().low, own_stack().high, begin, length);
}

bool sum_of_memory(uintptr_t begin, uint64_t length, uint64_t* sum) {
  *sum = 0;
  return add_memory(*sum, begin, length);
}

int this_thread() {
  thread_local int thread = 0;
  thread_local int process = 0;
  if (const int now = getpid(); process != now) {
    process = now;
    thread = static_cast<int>(syscall(SYS_gettid));
  }
  return thread;
}

void note_thread(Request& request, const Stack& posting) {
  request.thread = this_thread();
  const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  for (const Range& range : request.ranges) {
    if (range.memory < here || range.memory >= own_stack().high) continue;
    // In a callback of _Unwind_Backtrace, _Unwind_GetCFA is where the frame begins: the end of the one that
    // it calls.
    for (unsigned i = 0; i < posting.depth && range.memory >= posting.ends[i]; ++i) {
      request.function = posting.functions[i];
      request.frame_end = posting.ends[i];
    }
  }
}

void check_finished(QueuePair& qp, const Request& request, const Stack& polling) {
  uint64_t sum = 0;
  if (request.has_sum && sum_of(request, &sum) && sum != request.sum && !is_written(qp, request))
    report(rule("send-buffer-changed"),
           text("%s: the bytes of a %s with wr_id 0x%llx are not those that were posted", qp.name.c_str(),
                kind_of(request), static_cast<unsigned long long>(request.wr_id)),
           {{"posted here", request.posted}, {"completion polled here", keep_stack(polling)}});
  if (request.frame_end == 0 || request.thread != this_thread() || !has_returned(request, polling)) return;
  report(rule("stack-buffer-gone"),
         text("%s: a %s with wr_id 0x%llx", qp.name.c_str(), kind_of(request),
              static_cast<unsigned long long>(request.wr_id)),
         {{"posted here", request.posted}, {"completion polled here", keep_stack(polling)}});
}

}  // namespace verbena::check
