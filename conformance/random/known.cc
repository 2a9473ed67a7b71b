// SPDX-License-Identifier: BSD-2-Clause
#include "random/known.h"

namespace conformance::random {
namespace {

constexpr struct {
  const char* clause;
  bool Known::*what;
} table[] = {
    {"access.lkey.unknown", &Known::local_key_status},        {"error.local.lkey", &Known::local_key_status},
    {"error.rc.too-long.status", &Known::too_long_status},    {"ibv_bind_mw.bounds", &Known::window_bounds},
    {"ibv_post_send.rc.send-inv", &Known::invalidation_flag}, {"order.fence-rnr", &Known::fence_counts_later},
    {"retry.timeout.seven", &Known::endless_retries},
};

}  // namespace

Known known_of(const std::set<std::string>& deviations) {
  Known out;
  for (const auto& row : table) out.*row.what = out.*row.what || deviations.count(row.clause) != 0;
  return out;
}

}  // namespace conformance::random
