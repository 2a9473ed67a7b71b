// SPDX-License-Identifier: BSD-2-Clause
//
// How many objects ibv_query_device_ex(3) claims, against how many can be made. Exactly as many as claimed
// can be made, and the next is refused with ENOMEM; where none is claimed, the first is refused with
// EOPNOTSUPP. Run with one device profile after another (docs/PROFILES.md). Claims of more than can be made
// in a few seconds (kMost) are tested with profiles that claim less: the million regions, windows and address
// handles of `default`.
#include <fcntl.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "claims.h"

namespace verbena::test {
namespace {

// For most kinds, for regions, and for protection domains, which take a microsecond or two each.
#ifdef __SANITIZE_ADDRESS__
constexpr int kMost = 600, kMostRegions = 600, kMostDomains = 600;
#else
constexpr int kMost = 1 << 16, kMostRegions = 1 << 18, kMostDomains = 1 << 20;
#endif

struct Kind {
  const char* name;
  int (*claim)(const Device&);
  // Makes one more; 0 or errno.
  int (*make)(Claims&);
  int most = kMost;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class Objects : public Claims, public testing::WithParamInterface<Kind> {};

TEST_P(Objects, AsManyAsClaimedAndNoneMore) {
  const Kind& kind = GetParam();
  const int claim = kind.claim(device());
  int made = 0, error = 0;
  while (made <= claim && (error = kind.make(*this)) == 0) ++made;
  EXPECT_EQ(made, claim);
  EXPECT_EQ(error, claim != 0 ? ENOMEM : EOPNOTSUPP) << strerror(error);
}

const std::vector<Kind> kKinds = {
    {"Pds", [](const Device& d) { return d.attr.max_pd - 1; },  // the fixture has one
     [](Claims& c) { return c.keep(c.pds_, ibv_alloc_pd(c.context_.get())); }, kMostDomains},
    {"Cqs", [](const Device& d) { return d.attr.max_cq - 1; },
     [](Claims& c) { return c.keep(c.cqs_, c.cq(1)); }},
    {"Mrs", [](const Device& d) { return d.attr.max_mr; },
     [](Claims& c) { return c.keep(c.mrs_, ibv_reg_mr(c.pd_.get(), c.bytes_, 64, 0)); }, kMostRegions},
    {"MemoryWindows", [](const Device& d) { return d.attr.max_mw; },
     [](Claims& c) { return c.keep(c.mws_, ibv_alloc_mw(c.pd_.get(), IBV_MW_TYPE_1)); }},
    {"AddressHandles", [](const Device& d) { return d.attr.max_ah; },
     [](Claims& c) {
       ibv_ah_attr attr = c.address();
       return c.keep(c.ahs_, ibv_create_ah(c.pd_.get(), &attr));
     }},
    {"Qps", [](const Device& d) { return d.attr.max_qp; },
     [](Claims& c) { return c.keep(c.qps_, c.qp(IBV_QPT_RC)); }},
    {"Srqs", [](const Device& d) { return d.attr.max_srq; },
     [](Claims& c) { return c.keep(c.srqs_, c.srq(1, 1)); }},
    // The profile's name is no attribute of the device: the environment has it (CMakeLists.txt).
    {"XrcDomains", [](const Device&) { return claimed_in_environment("VERBENA_TEST_MAX_XRCD"); },
     [](Claims& c) {
       ibv_xrcd_init_attr attr = {};
       attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
       attr.fd = -1;
       attr.oflags = O_CREAT;
       return c.keep(c.xrcds_, ibv_open_xrcd(c.context_.get(), &attr));
     }},
    {"MulticastGroups",
     [](const Device& d) { return std::min(d.attr.max_mcast_grp, d.attr.max_total_mcast_qp_attach); },
     [](Claims& c) { return c.attach(c.first_datagram_qp(), c.attached_ + 1); }},
    {"MembersOfAGroup",
     [](const Device& d) {
       return d.attr.max_mcast_qp_attach <= d.attr.max_qp ? d.attr.max_mcast_qp_attach : -1;
     },
     [](Claims& c) { return c.attach(c.new_datagram_qp(), 1); }},
};

// Not kinds for which the device claims nothing, nor those with too many.
bool can_be_counted(const Device& device, const Kind& kind) {
  const int claim = kind.claim(device);
  return claim >= 0 && claim <= kind.most;
}
INSTANTIATE_TEST_SUITE_P(Of, Objects, testing::ValuesIn(where(can_be_counted, kKinds)),
                         [](const auto& kind) { return std::string(kind.param.name); });

// On devices with multicast groups.
class Groups : public Claims, public testing::WithParamInterface<int> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Groups);
INSTANTIATE_TEST_SUITE_P(
    Of, Groups,
    testing::ValuesIn(where([](const Device& d, int) { return d.attr.max_mcast_grp != 0; }, std::vector{1})));

// Where the device's total is reached before every group is full.
class GroupsInAll : public Claims, public testing::WithParamInterface<int> {};
bool total_comes_first(const Device& device, int) {
  const ibv_device_attr& attr = device.attr;
  return attr.max_total_mcast_qp_attach <= kMost && attr.max_mcast_qp_attach <= attr.max_qp &&
         attr.max_mcast_grp * attr.max_mcast_qp_attach > attr.max_total_mcast_qp_attach;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupsInAll);
INSTANTIATE_TEST_SUITE_P(Of, GroupsInAll, testing::ValuesIn(where(total_comes_first, std::vector{1})));

// Each group gets as many members as it may have, until the device's total is reached.
TEST_P(GroupsInAll, AsManyMembersAsClaimedAndNoneMore) {
  const int groups = device_.max_mcast_grp, each = device_.max_mcast_qp_attach,
            all = device_.max_total_mcast_qp_attach;
  int made = 0, error = 0;
  for (int group = 1; group <= groups && error == 0; ++group)
    for (int i = 0; i < each && error == 0; ++i) {
      if (group == 1) {
        ASSERT_NE(new_datagram_qp(), nullptr);
      }
      if ((error = attach(qps_[static_cast<size_t>(i)].get(), group)) == 0) ++made;
    }
  EXPECT_EQ(made, all);
  EXPECT_EQ(error, ENOMEM);
}

TEST_P(Groups, WhatIsDetachedMakesRoom) {
  ibv_qp* qp = first_datagram_qp();
  int error = 0;
  while (attached_ < kMost && (error = attach(qp, attached_ + 1)) == 0) {
  }
  ASSERT_EQ(error, ENOMEM);
  detach_last();
  EXPECT_EQ(attach(qp, attached_ + 1), 0);
}

TEST_F(Claims, DeviceMemory) {
  ibv_device_attr_ex extended = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &extended), 0);
  ibv_alloc_dm_attr attr = {};
  attr.length = extended.max_dm_size;
  if (attr.length == 0) {
    attr.length = 8;
    EXPECT_EQ(ibv_alloc_dm(context_.get(), &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    return;
  }
  ibv_dm* all = ibv_alloc_dm(context_.get(), &attr);
  ASSERT_NE(all, nullptr) << strerror(errno);
  attr.length = 1;
  EXPECT_EQ(ibv_alloc_dm(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(all), 0);
}

}  // namespace
}  // namespace verbena::test
