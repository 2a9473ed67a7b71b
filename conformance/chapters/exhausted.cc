// SPDX-License-Identifier: BSD-2-Clause
//
// Uses up everything that the device has. Others get nothing meanwhile, so these tests are for
// --allow-disruptive.
#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::exhausted_chapter {
namespace {

// So many objects a process may have before this tests its memory rather than the device.
constexpr size_t enough = 20000;

class Fixture : public DeviceTest {
 protected:
  // How many objects the device can have. Not Device::attributes(): the extended query may tell what is left.
  size_t most(int ibv_device_attr::*number) {
    ibv_device_attr attr = {};
    EXPECT_SUCCEEDS(ibv_query_device(context(), &attr));
    return static_cast<size_t>(std::max(attr.*number, 0));
  }
  // `make` returns an object, or null. The pages of the creating functions promise no errno value.
  template <typename Object>
  void exhaust(size_t claimed, const std::function<Object()>& make) {
    std::vector<Object> all;
    Object more;
    int error = 0;
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(20));
    while (all.size() < std::min(claimed + 1, enough)) {
      // As long again to destroy them. Firmware may need milliseconds for each.
      if (std::chrono::steady_clock::now() > deadline) throw NotTested{"not exhausted within 20 s"};
      errno = 0;
      more = make();
      error = errno;
      if (more == nullptr) break;
      all.push_back(std::move(more));
    }
    observe_count(all.size(), claimed);
    EXPECT_LE(all.size(), claimed) << "more than the maximum";
    ASSERT_FALSE(all.empty()) << errno_text(error);
    if (all.size() == enough) return;  // not exhausted: nothing was refused
    EXPECT_SUCCEEDS(all.back().destroy());
    all.pop_back();
    EXPECT_NE(make(), nullptr) << "one was given back: " << errno_text(errno);
  }

  static void observe_count(size_t count, size_t claimed) {
    trace(std::to_string(count) + " at once; claimed " + std::to_string(claimed));
  }
};

CONFORMANCE_TEST_AS(Traits().disruptive().limit(60), device, EveryCqThereIs, "ibv_create_cq.exhausted") {
  exhaust<Cq>(most(&ibv_device_attr::max_cq),
              [&] { return Cq(ibv_create_cq(context(), 1, nullptr, nullptr, 0)); });
}

CONFORMANCE_TEST_AS(Traits().disruptive().limit(60), device, EveryQpThereIs, "ibv_create_qp.exhausted") {
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  QpSpec spec;
  spec.send_depth = spec.receive_depth = 1;
  make_qp(pd, cq, spec);  // of an adapter without RC nothing is asked
  exhaust<Qp>(most(&ibv_device_attr::max_qp), [&] {
    ibv_qp_init_attr attr = init_attributes(spec, cq, cq);
    return Qp(ibv_create_qp(pd, &attr));
  });
}

CONFORMANCE_TEST_AS(Traits().disruptive().limit(60), device, EverySrqThereIs, "ibv_create_srq.exhausted") {
  if (device().attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
  const Pd pd = make_pd(device());
  exhaust<Srq>(most(&ibv_device_attr::max_srq), [&] {
    ibv_srq_init_attr attr = {};
    attr.attr.max_wr = attr.attr.max_sge = 1;
    return Srq(ibv_create_srq(pd, &attr));
  });
}

}  // namespace
}  // namespace conformance::exhausted_chapter
