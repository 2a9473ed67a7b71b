// SPDX-License-Identifier: BSD-2-Clause
#include "check/write_races.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "check/operations.h"
#include "check/report.h"

namespace verbena::check {
namespace {

constexpr long kWatched = 100'000;            // ns
constexpr uint64_t kLongestTarget = 1 << 16;  // bytes of a WRITE, from its first one on
constexpr size_t kMostTargets = 16;           // requests of a list, from its first one on
constexpr uint64_t kEach = 1000;              // lists that are watched without exception, then
constexpr uint64_t kOneIn = 16;               // one in so many

// What a WRITE is about to change.
struct Target {
  const ibv_send_wr* wr;
  std::vector<unsigned char> bytes;
};

bool is_write(const ibv_send_wr& wr) {
  return wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

uint64_t length_of(const ibv_send_wr& wr) {
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge && wr.sg_list != nullptr; ++i) length += wr.sg_list[i].length;
  return length;
}

bool read(ibv_qp* qp, const ibv_send_wr& wr, std::vector<unsigned char>& bytes) {
  return provider().read_target(qp, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey, bytes.data(),
                                static_cast<uint32_t>(bytes.size()));
}

// A list of requests is watched as a whole: before its first one is posted nothing of it has changed a byte.
std::vector<Target> targets_of(ibv_qp* qp, const ibv_send_wr* list) {
  std::vector<Target> targets;
  size_t looked = 0;  // a list that leads back to itself has no end
  for (const ibv_send_wr* wr = list; wr != nullptr && looked < kMostTargets; wr = wr->next, ++looked) {
    if (!is_write(*wr)) continue;
    Target target{wr, std::vector<unsigned char>(std::min(length_of(*wr), kLongestTarget))};
    if (!target.bytes.empty() && read(qp, *wr, target.bytes)) targets.push_back(std::move(target));
  }
  return targets;
}

void compare(const QueuePair& qp, const Target& target, const std::vector<unsigned char>& now,
             StackId posted) {
  const auto [was, is] = std::mismatch(target.bytes.begin(), target.bytes.end(), now.begin());
  if (was == target.bytes.end()) return;
  size_t count = 0;
  for (size_t i = 0; i < now.size(); ++i) count += now[i] != target.bytes[i] ? 1 : 0;
  const ibv_send_wr& wr = *target.wr;
  const auto offset = static_cast<unsigned long long>(was - target.bytes.begin());
  report(
      rule("write-race"),
      text("%s: RDMA_WRITE with wr_id 0x%llx to rkey 0x%x, [0x%llx, +%llu): byte %llu changed from 0x%02x to "
           "0x%02x before the WRITE was placed; bytes that changed: %zu",
           qp.name.c_str(), static_cast<unsigned long long>(wr.wr_id), wr.wr.rdma.rkey,
           static_cast<unsigned long long>(wr.wr.rdma.remote_addr),
           static_cast<unsigned long long>(length_of(wr)), offset, *was, *is, count),
      {{"posted here", posted}});
}

}  // namespace

void watch_targets(ibv_qp* qp, const ibv_send_wr* list, const Stack& stack) {
  if (!is_enabled(rule("write-race")) || (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC)) return;
  static std::atomic<uint64_t> lists{0};
  if (const uint64_t number = lists.fetch_add(1, std::memory_order_relaxed);
      number >= kEach && number % kOneIn != 0)
    return;
  const Inside inside;
  const std::vector<Target> targets = targets_of(qp, list);
  if (targets.empty()) return;
  const timespec pause = {0, kWatched};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  for (const Target& target : targets) {
    std::vector<unsigned char> now(target.bytes.size());
    if (!read(qp, *target.wr, now)) continue;
    const Locked locked;
    if (const auto* const known = find<QueuePair>(qp); known != nullptr)
      compare(*known, target, now, keep_stack(stack));
  }
}

}  // namespace verbena::check
