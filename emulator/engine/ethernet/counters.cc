// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_counters(3), ibv_attach_counters_point_flow(3), ibv_read_counters(3). Counters are bound when a
// flow is created, and not to a flow that exists, as on mlx5 (providers/mlx5/verbs.c,
// mlx5_attach_counters_point_flow()).
#include <errno.h>

#include <algorithm>
#include <new>

#include "emulator.h"
#include "engine/ethernet/flow.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/rules/program_enum.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint32_t kMostIndices = 1024;

int refuse_point(int error, const ibv_counter_attach_attr& attr, const char* why) {
  VERBENA_WARN(counters, "ibv_attach_counters_point_flow: counter_desc %u, index %u, comp_mask 0x%x: %s",
               number_in(attr.counter_desc), attr.index, attr.comp_mask, why);
  return error;
}

FlowTable::Counts operator+(FlowTable::Counts a, FlowTable::Counts b) {
  return {a.frames + b.frames, a.bytes + b.bytes};
}

FlowTable::Counts counts_of(const SteeredFlow& flow) {
  return FlowTable(flow.qp->process->directory()).counts(flow.handle);
}

}  // namespace

FlowTable::Counts sum_of(const Counters& counters) {
  FlowTable::Counts sum = counters.gone;
  for (const SteeredFlow* flow : counters.flows) sum = sum + counts_of(*flow);
  return sum;
}

void bind_counters(SteeredFlow& flow) {
  if (flow.counters == nullptr) return;
  std::lock_guard lock(flow.counters->mutex);
  flow.counters->flows.push_back(&flow);
}

void unbind_counters(SteeredFlow& flow) {
  if (flow.counters == nullptr) return;
  std::lock_guard lock(flow.counters->mutex);
  flow.counters->gone = flow.counters->gone + counts_of(flow);
  std::erase(flow.counters->flows, &flow);
}

int create_counters(Context* context, const ibv_counters_init_attr* attr, Counters** out) {
  if (int error = usable(*context); error != 0) return error;
  if (context->device->limits.max_flow == 0 || context->device->link_layer != LinkLayer::kEthernet) {
    VERBENA_WARN(feature_absent, "ibv_create_counters: the device has no flows, and nothing else is counted");
    return EOPNOTSUPP;
  }
  if (attr->comp_mask != 0) {
    VERBENA_WARN(unknown_bits, "ibv_create_counters: comp_mask 0x%x: it has no bits",
                 static_cast<unsigned>(attr->comp_mask));
    return EOPNOTSUPP;
  }
  auto* counters = new (std::nothrow) Counters;
  if (counters == nullptr) return ENOMEM;
  counters->context = context;
  *out = counters;
  return 0;
}

int destroy_counters(Counters* counters) {
  {
    std::lock_guard lock(counters->mutex);
    if (!counters->flows.empty() && !counters->context->process->dead()) {
      VERBENA_WARN(object_in_use, "ibv_destroy_counters: %zu flows still count with it",
                   counters->flows.size());
      return EBUSY;
    }
  }
  delete counters;
  return 0;
}

int attach_counters(Counters* counters, const ibv_counter_attach_attr* attr, const ibv_flow* flow) {
  if (int error = usable(*counters->context); error != 0) return error;
  if (attr->comp_mask != 0) return refuse_point(EOPNOTSUPP, *attr, "comp_mask has no bits");
  if (flow != nullptr) return refuse_point(ENOTSUP, *attr, "counters are bound when a flow is created");
  if (number_in(attr->counter_desc) > IBV_COUNTER_BYTES)
    return refuse_point(ENOTSUP, *attr, "frames and bytes are counted");
  if (attr->index >= kMostIndices) return refuse_point(EINVAL, *attr, "an index is below 1024");
  std::lock_guard lock(counters->mutex);
  if (!counters->flows.empty()) return refuse_point(EBUSY, *attr, "a flow counts with it");
  try {
    counters->points.push_back({attr->counter_desc, attr->index});
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return 0;
}

int read_counters(Counters* counters, uint64_t* values, uint32_t count, uint32_t flags) {
  if (int error = usable(*counters->context); error != 0) return error;
  std::lock_guard lock(counters->mutex);
  uint32_t least = 0;
  for (const Counters::Point& point : counters->points) least = std::max(least, point.index + 1);
  if (count < least || (flags & ~uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) {
    VERBENA_WARN(counters, "ibv_read_counters: ncounters %u, flags 0x%x: %u values are attached", count,
                 flags, least);
    return EINVAL;
  }
  std::fill_n(values, count, uint64_t{0});
  const FlowTable::Counts sum = sum_of(*counters);
  for (const Counters::Point& point : counters->points)
    values[point.index] += point.what == IBV_COUNTER_PACKETS ? sum.frames : sum.bytes;
  return 0;
}

}  // namespace verbena
