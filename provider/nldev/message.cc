// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/message.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

namespace verbena::nldev {
namespace {

constexpr size_t aligned(size_t size) { return (size + NLMSG_ALIGNTO - 1) / NLMSG_ALIGNTO * NLMSG_ALIGNTO; }
constexpr size_t kHeader = sizeof(nlattr);
static_assert(NLMSG_ALIGNTO == NLA_ALIGNTO && kHeader == 4 && sizeof(nlmsghdr) == 16);

// What the kernel requires of the attributes that requests have (nldev_policy). `text`: the longest text; 0:
// it is a number of at least `size` bytes.
struct Rule {
  uint16_t attribute;
  size_t size;
  size_t text;
};
constexpr Rule kRules[] = {
    {RDMA_NLDEV_ATTR_DEV_INDEX, 4, 0},
    {RDMA_NLDEV_ATTR_PORT_INDEX, 4, 0},
    {RDMA_NLDEV_ATTR_DEV_NAME, 0, 64},
    {RDMA_NLDEV_ATTR_CHARDEV_TYPE, 0, 32},
    {RDMA_NLDEV_ATTR_RES_LQPN, 4, 0},
    {RDMA_NLDEV_ATTR_RES_CQN, 4, 0},
    {RDMA_NLDEV_ATTR_RES_MRN, 4, 0},
    {RDMA_NLDEV_ATTR_RES_PDN, 4, 0},
    {RDMA_NLDEV_ATTR_RES_CM_IDN, 4, 0},
    {RDMA_NLDEV_ATTR_RES_CTXN, 4, 0},
    {kResSrqn, 4, 0},
    {RDMA_NLDEV_ATTR_STAT_MODE, 4, 0},
    {RDMA_NLDEV_ATTR_STAT_RES, 4, 0},
    {RDMA_NLDEV_ATTR_STAT_COUNTER_ID, 4, 0},
    {kDriverDetails, 1, 0},
};

int check(uint16_t attribute, const void* data, size_t size) {
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& r) { return r.attribute == attribute; });
  if (rule == std::end(kRules)) return 0;
  if (rule->text == 0) return size < rule->size ? ERANGE : 0;
  if (size == 0 || std::memchr(data, 0, std::min(size, rule->text + 1)) == nullptr) return EINVAL;
  return 0;
}

}  // namespace

void* Writer::reserve(size_t size) {
  if (full_ || bytes_.size() + aligned(size) > kDatagramSize) {
    full_ = true;
    return nullptr;
  }
  const size_t at = bytes_.size();
  bytes_.resize(at + aligned(size));
  return bytes_.data() + at;
}

size_t Writer::begin(uint16_t type, uint16_t flags, uint32_t sequence, uint32_t port) {
  const size_t at = bytes_.size();
  const nlmsghdr header = {.nlmsg_len = sizeof header,
                           .nlmsg_type = type,
                           .nlmsg_flags = flags,
                           .nlmsg_seq = sequence,
                           .nlmsg_pid = port};
  if (void* to = reserve(sizeof header); to != nullptr) std::memcpy(to, &header, sizeof header);
  return at;
}

void Writer::end(size_t message) {
  if (full_) return;
  const auto length = static_cast<uint32_t>(bytes_.size() - message);
  std::memcpy(bytes_.data() + message, &length, sizeof length);
}

void Writer::put(uint16_t attribute, const void* data, size_t size) {
  const nlattr header = {.nla_len = static_cast<uint16_t>(kHeader + size), .nla_type = attribute};
  auto* to = static_cast<char*>(reserve(kHeader + size));
  if (to == nullptr) return;
  std::memcpy(to, &header, kHeader);
  if (size != 0) std::memcpy(to + kHeader, data, size);
}

void Writer::put_text(uint16_t attribute, std::string_view text) {
  const std::string ended(text);
  put(attribute, ended.c_str(), ended.size() + 1);
}

size_t Writer::begin_nest(uint16_t attribute) {
  const size_t at = bytes_.size();
  put(attribute, nullptr, 0);
  return at;
}

void Writer::end_nest(size_t nest) {
  if (full_) return;
  const auto length = static_cast<uint16_t>(bytes_.size() - nest);
  std::memcpy(bytes_.data() + nest, &length, sizeof length);
}

void Writer::append(const void* data, size_t size) {
  if (void* to = reserve(size); to != nullptr) std::memcpy(to, data, size);
}

void Writer::cut(size_t size) {
  bytes_.resize(size);
  full_ = false;
}

int Attributes::parse(const void* data, size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size >= kHeader) {
    nlattr header;
    std::memcpy(&header, at, kHeader);
    if (header.nla_len < kHeader || header.nla_len > size) break;
    const uint16_t type = header.nla_type & NLA_TYPE_MASK;
    const size_t length = header.nla_len - kHeader;
    if (type > 0 && type < kAttributes) {
      if (const int error = check(type, at + kHeader, length); error != 0) return error;
      found_[type] = {at + kHeader, length};
    }
    const size_t step = std::min(aligned(header.nla_len), size);
    at += step;
    size -= step;
  }
  return 0;
}

uint32_t Attributes::get32(uint16_t attribute) const {
  uint32_t value = 0;
  if (found_[attribute].size >= sizeof value) std::memcpy(&value, found_[attribute].data, sizeof value);
  return value;
}

uint8_t Attributes::get8(uint16_t attribute) const {
  uint8_t value = 0;
  if (found_[attribute].size >= sizeof value) std::memcpy(&value, found_[attribute].data, sizeof value);
  return value;
}

std::string_view Attributes::get_text(uint16_t attribute) const {
  const Found& found = found_[attribute];
  const auto* text = static_cast<const char*>(found.data);
  return text == nullptr ? std::string_view() : std::string_view(text, strnlen(text, found.size));
}

}  // namespace verbena::nldev
