// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/answer_limit.h"

#include <algorithm>

namespace verbena::packets {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

bool is_mapped_ipv4(const std::array<uint8_t, 16>& address) {
  constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(std::begin(kPrefix), std::end(kPrefix), address.begin());
}

Source source_of(std::array<uint8_t, 16> address) {
  if (!is_mapped_ipv4(address)) std::fill(address.begin() + 8, address.end(), uint8_t{0});
  return address;
}

}  // namespace

bool take_answer(const AnswerRate& rate, int64_t now, int64_t* clock) noexcept {
  const int64_t step = kSecond / std::max(rate.per_second, 1u);
  const int64_t begin = std::max(*clock, now);
  if (begin - now > step * (int64_t{rate.burst} - 1)) return false;
  *clock = begin + step;
  return true;
}

bool AnswerLimit::allow(const std::array<uint8_t, 16>& address, int64_t now) noexcept {
  const Source source = source_of(address);
  auto entry = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& each) { return each.source == source; });
  if (entry == entries_.end()) {
    entry = std::min_element(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.clock < b.clock; });
    *entry = {source, 0};
  }
  const AnswerRate together{rate_.burst * kAllTogether, rate_.per_second * kAllTogether};
  int64_t all = all_;
  if (!take_answer(together, now, &all) || !take_answer(rate_, now, &entry->clock)) return false;
  all_ = all;
  return true;
}

}  // namespace verbena::packets
