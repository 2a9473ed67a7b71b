// SPDX-License-Identifier: BSD-2-Clause
//
// SET_OPTION.
#include <cstring>
#include <vector>

#include "rdma_cm/call.h"

namespace verbena::rdma_cm {
namespace {

constexpr size_t kLargestValue = size_t{4} << 20;  // KMALLOC_MAX_SIZE

using Value = std::vector<uint8_t>;

template <typename T>
T value_as(const Value& value) {
  T typed;
  memcpy(&typed, value.data(), sizeof typed);
  return typed;
}

int set_service_type(cm::Id* id, const Value& value) { return cm::set_service_type(id, value[0]); }
int set_reuse_address(cm::Id* id, const Value& value) {
  return cm::set_reuse_address(id, value_as<int>(value) != 0);
}
int set_family_only(cm::Id* id, const Value& value) {
  return cm::set_family_only(id, value_as<int>(value) != 0);
}
int set_ack_timeout(cm::Id* id, const Value& value) { return cm::set_ack_timeout(id, value[0]); }

// ucma_set_ib_path: the first record of a primary path in both directions.
int set_path(cm::Id* id, const Value& value) {
  constexpr uint32_t kWanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  if (value.size() % sizeof(ib_path_rec_data) != 0) return EINVAL;
  for (size_t at = 0; at < value.size(); at += sizeof(ib_path_rec_data)) {
    ib_path_rec_data path;
    memcpy(&path, value.data() + at, sizeof path);
    if (path.flags == kWanted) return cm::set_path(id, &path, 1);
  }
  return EINVAL;
}

struct Option {
  uint32_t level;
  uint32_t name;
  size_t size;  // of the value; 0: any
  int (*set)(cm::Id*, const Value&);
};

constexpr Option kOptions[] = {
    {RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, sizeof(uint8_t), set_service_type},
    {RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, sizeof(int), set_reuse_address},
    {RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, sizeof(int), set_family_only},
    {RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, sizeof(uint8_t), set_ack_timeout},
    {RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 0, set_path},
};

const Option* find_option(uint32_t level, uint32_t name) {
  for (const Option& option : kOptions)
    if (option.level == level && option.name == name) return &option;
  return nullptr;
}

}  // namespace

int set_option(Call& call) {
  const auto& request = call.as<rdma_ucm_set_option>();
  if (request.optlen > kLargestValue) return EINVAL;
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  Value value(request.optlen);
  const auto* from = reinterpret_cast<const void*>(static_cast<uintptr_t>(request.optval));
  if (const int error = copy_from_program(value.data(), from, value.size()); error != 0) return error;
  const Option* option = find_option(request.level, request.optname);
  if (option == nullptr) return ENOSYS;
  if (option->size != 0 && value.size() != option->size) return EINVAL;
  return option->set(context->cm_id, value);
}

}  // namespace verbena::rdma_cm
