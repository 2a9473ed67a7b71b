// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/statistic_commands.h"

#include <errno.h>

#include "nldev/resource_commands.h"
#include "survey/counters.h"

namespace verbena::nldev {
namespace {

const DeviceSurvey* device_of(const Request& request) {
  const DeviceSurvey* device = request.device();
  return device != nullptr && request.names_port() && request.has_valid_port() ? device : nullptr;
}

int get_port_counters(const Request& request, Writer* out) {
  const DeviceSurvey* device = device_of(request);
  if (device == nullptr) return EINVAL;
  const HwCounters values = hw_counters(look_at_objects(request.node), device->index, request.named_port());
  return write_reply(request, RDMA_NLDEV_CMD_STAT_GET, out, [&](Writer* w) {
    put_device(w, *device);
    w->put32(RDMA_NLDEV_ATTR_PORT_INDEX, request.named_port());
    const size_t table = w->begin_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS | NLA_F_NESTED);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t entry = w->begin_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY | NLA_F_NESTED);
      w->put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, kHwCounterNames[i]);
      w->put64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, values[i]);
      w->end_nest(entry);
    }
    w->end_nest(table);
  });
}

int get_queue_pair_mode(const Request& request, Writer* out) {
  const DeviceSurvey* device = device_of(request);
  if (device == nullptr) return EINVAL;
  if (request.attributes.has(RDMA_NLDEV_ATTR_STAT_COUNTER_ID)) return ENOENT;
  if (!request.attributes.has(RDMA_NLDEV_ATTR_STAT_MODE)) return EINVAL;
  return write_reply(request, RDMA_NLDEV_CMD_STAT_GET, out, [&](Writer* w) {
    put_device(w, *device);
    w->put32(RDMA_NLDEV_ATTR_PORT_INDEX, request.named_port());
    w->put32(RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_NONE);
  });
}

}  // namespace

int get_statistics(const Request& request, Writer* out) {
  if (request.parse_error != 0) return EINVAL;
  if (!request.attributes.has(RDMA_NLDEV_ATTR_STAT_RES)) return get_port_counters(request, out);
  switch (request.attributes.get32(RDMA_NLDEV_ATTR_STAT_RES)) {
    case RDMA_NLDEV_ATTR_RES_QP:
      return get_queue_pair_mode(request, out);
    case RDMA_NLDEV_ATTR_RES_MR:
      return get_region_statistics(request, out);
    default:
      return EINVAL;
  }
}

int dump_statistics(const Request& request, Dump* out) {
  if (request.parse_error != 0 || !request.attributes.has(RDMA_NLDEV_ATTR_STAT_RES)) return EINVAL;
  switch (request.attributes.get32(RDMA_NLDEV_ATTR_STAT_RES)) {
    case RDMA_NLDEV_ATTR_RES_QP:
      return request.device() != nullptr && request.has_valid_port() ? 0 : EINVAL;
    case RDMA_NLDEV_ATTR_RES_MR:
      return dump_region_statistics(request, out);
    default:
      return EINVAL;
  }
}

int get_counter_status(const Request& request, Writer* out) {
  const DeviceSurvey* device = device_of(request);
  if (device == nullptr) return EINVAL;
  return write_reply(request, kStatGetStatus, out, [&](Writer* w) {
    put_device(w, *device);
    w->put32(RDMA_NLDEV_ATTR_PORT_INDEX, request.named_port());
    const size_t table = w->begin_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS | NLA_F_NESTED);
    for (uint32_t i = 0; i < kHwCounters; ++i) {
      const size_t entry = w->begin_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY | NLA_F_NESTED);
      w->put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, kHwCounterNames[i]);
      w->put32(kStatHwcounterIndex, i);
      w->end_nest(entry);
    }
    w->end_nest(table);
  });
}

}  // namespace verbena::nldev
