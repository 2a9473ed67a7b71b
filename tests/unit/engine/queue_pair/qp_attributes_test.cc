// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/qp_attributes.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "adapter/access_rules.h"

namespace verbena {
namespace {

// An RC QP in INIT on port 1 of a device with two ports, and a valid value for every attribute.
AttributeLimits limits() {
  AttributeLimits l;
  l.ports = 2;
  l.active_mtu = IBV_MTU_1024;
  l.pkeys = 3;
  l.gids = {5, 5};
  l.max_rd_atomic = 16;
  l.max_dest_rd_atomic = 8;
  l.current_state = IBV_QPS_INIT;
  l.port = 1;
  return l;
}

AttributeLimits infiniband() {
  AttributeLimits l = limits();
  l.link_layer = IBV_LINK_LAYER_INFINIBAND;
  l.path_migration = true;
  l.has_alternate = true;
  return l;
}

ibv_ah_attr address() {
  ibv_ah_attr ah{};
  ah.is_global = 1;
  ah.port_num = 1;
  ah.dlid = 7;
  ah.grh.dgid.raw[0] = 0xfe;
  ah.grh.dgid.raw[1] = 0x80;
  return ah;
}

ibv_qp_attr attributes() {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.cur_qp_state = IBV_QPS_INIT;
  a.path_mtu = IBV_MTU_1024;
  a.port_num = 1;
  a.ah_attr = address();
  a.alt_ah_attr = address();
  a.alt_port_num = 1;
  return a;
}

struct AttributeCase {
  const char* what;
  int mask;
  void (*change)(ibv_qp_attr&);
  int refusal;
};

void expect_cases(const AttributeLimits& l, std::initializer_list<AttributeCase> cases) {
  for (const AttributeCase& c : cases) {
    ibv_qp_attr attr = attributes();
    c.change(attr);
    const char* why = nullptr;
    EXPECT_EQ(check_attributes(l, IBV_QPT_RC, attr, c.mask, &why), c.refusal) << c.what << (why ? why : "");
    EXPECT_EQ(why == nullptr, c.refusal == 0) << c.what;
    EXPECT_EQ(check_attributes(l, IBV_QPT_RC, attr, 0, &why), 0) << c.what << ", but not in the mask";
  }
}

constexpr int kAllAttributes = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                               IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
                               IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
                               IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PATH_MIG_STATE | IBV_QP_DEST_QPN;

TEST(QpAttributes, GoodOnesPassAllTogether) {
  EXPECT_EQ(check_attributes(infiniband(), IBV_QPT_RC, attributes(), kAllAttributes, nullptr), 0);
}

TEST(QpAttributes, GoodOnesPassOnEthernet) {
  EXPECT_EQ(check_attributes(limits(), IBV_QPT_RC, attributes(), kAllAttributes & ~IBV_QP_ALT_PATH, nullptr),
            0);
}

TEST(QpAttributes, NumbersAreCheckedAtTheirEdges) {
  expect_cases(
      limits(),
      {
          {"port_num 0", IBV_QP_PORT, [](ibv_qp_attr& a) { a.port_num = 0; }, EINVAL},
          {"port_num last", IBV_QP_PORT, [](ibv_qp_attr& a) { a.port_num = 2; }, 0},
          {"port_num behind", IBV_QP_PORT, [](ibv_qp_attr& a) { a.port_num = 3; }, EINVAL},
          {"pkey_index last", IBV_QP_PKEY_INDEX, [](ibv_qp_attr& a) { a.pkey_index = 2; }, 0},
          {"pkey_index behind", IBV_QP_PKEY_INDEX, [](ibv_qp_attr& a) { a.pkey_index = 3; }, EINVAL},
          {"path_mtu 0", IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); },
           EINVAL},
          {"path_mtu 256", IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = IBV_MTU_256; }, 0},
          {"path_mtu active", IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = IBV_MTU_1024; }, 0},
          {"path_mtu above active", IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = IBV_MTU_2048; },
           EINVAL},
          {"path_mtu 200", IBV_QP_PATH_MTU, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(200); },
           EINVAL},
          {"max_rd_atomic 0", IBV_QP_MAX_QP_RD_ATOMIC, [](ibv_qp_attr& a) { a.max_rd_atomic = 0; }, 0},
          {"max_rd_atomic most", IBV_QP_MAX_QP_RD_ATOMIC, [](ibv_qp_attr& a) { a.max_rd_atomic = 16; }, 0},
          {"max_rd_atomic above", IBV_QP_MAX_QP_RD_ATOMIC, [](ibv_qp_attr& a) { a.max_rd_atomic = 17; },
           EINVAL},
          {"max_dest_rd_atomic most", IBV_QP_MAX_DEST_RD_ATOMIC,
           [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 8; }, 0},
          {"max_dest_rd_atomic above", IBV_QP_MAX_DEST_RD_ATOMIC,
           [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 9; }, EINVAL},
          {"timeout most", IBV_QP_TIMEOUT, [](ibv_qp_attr& a) { a.timeout = 31; }, 0},
          {"timeout above", IBV_QP_TIMEOUT, [](ibv_qp_attr& a) { a.timeout = 32; }, EINVAL},
          {"retry_cnt most", IBV_QP_RETRY_CNT, [](ibv_qp_attr& a) { a.retry_cnt = 7; }, 0},
          {"retry_cnt above", IBV_QP_RETRY_CNT, [](ibv_qp_attr& a) { a.retry_cnt = 8; }, EINVAL},
          {"rnr_retry most", IBV_QP_RNR_RETRY, [](ibv_qp_attr& a) { a.rnr_retry = 7; }, 0},
          {"rnr_retry above", IBV_QP_RNR_RETRY, [](ibv_qp_attr& a) { a.rnr_retry = 8; }, EINVAL},
          {"min_rnr_timer most", IBV_QP_MIN_RNR_TIMER, [](ibv_qp_attr& a) { a.min_rnr_timer = 31; }, 0},
          {"min_rnr_timer above", IBV_QP_MIN_RNR_TIMER, [](ibv_qp_attr& a) { a.min_rnr_timer = 32; }, EINVAL},
          {"dest_qp_num most", IBV_QP_DEST_QPN, [](ibv_qp_attr& a) { a.dest_qp_num = 0xffffff; }, 0},
          {"dest_qp_num above", IBV_QP_DEST_QPN, [](ibv_qp_attr& a) { a.dest_qp_num = 0x1000000; }, EINVAL},
      });
}

TEST(QpAttributes, PsnsAreNeverRefused) {
  expect_cases(limits(), {
                             {"rq_psn", IBV_QP_RQ_PSN, [](ibv_qp_attr& a) { a.rq_psn = UINT32_MAX; }, 0},
                             {"sq_psn", IBV_QP_SQ_PSN, [](ibv_qp_attr& a) { a.sq_psn = UINT32_MAX; }, 0},
                         });
}

TEST(QpAttributes, AccessFlagsAreThoseOfTheApi) {
  expect_cases(
      limits(),
      {
          {"none", IBV_QP_ACCESS_FLAGS, [](ibv_qp_attr& a) { a.qp_access_flags = 0; }, 0},
          {"what reg_mr takes", IBV_QP_ACCESS_FLAGS,
           [](ibv_qp_attr& a) {
             a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
           },
           0},
          {"relaxed ordering", IBV_QP_ACCESS_FLAGS,
           [](ibv_qp_attr& a) { a.qp_access_flags = IBV_ACCESS_RELAXED_ORDERING; }, 0},
          {"no local write needed", IBV_QP_ACCESS_FLAGS,
           [](ibv_qp_attr& a) { a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE; }, 0},
          {"the rights to FLUSH", IBV_QP_ACCESS_FLAGS, [](ibv_qp_attr& a) { a.qp_access_flags = kAccessFlush; }, 0},
          {"bit 12", IBV_QP_ACCESS_FLAGS, [](ibv_qp_attr& a) { a.qp_access_flags = 1u << 12; }, EINVAL},
          {"bit 31", IBV_QP_ACCESS_FLAGS, [](ibv_qp_attr& a) { a.qp_access_flags = 1u << 31; }, EINVAL},
      });
}

TEST(QpAttributes, CurrentStateMustBeTrue) {
  expect_cases(
      limits(),
      {
          {"as it is", IBV_QP_CUR_STATE, [](ibv_qp_attr& a) { a.cur_qp_state = IBV_QPS_INIT; }, 0},
          {"another", IBV_QP_CUR_STATE, [](ibv_qp_attr& a) { a.cur_qp_state = IBV_QPS_RTS; }, EINVAL},
          {"none there is", IBV_QP_CUR_STATE,
           [](ibv_qp_attr& a) { a.cur_qp_state = static_cast<ibv_qp_state>(200); }, EINVAL},
      });
}

TEST(QpAttributes, PrivilegedQkeyNeedsThePrivilege) {
  expect_cases(limits(), {
                             {"plain", IBV_QP_QKEY, [](ibv_qp_attr& a) { a.qkey = 0x7fffffff; }, 0},
                             {"top bit", IBV_QP_QKEY, [](ibv_qp_attr& a) { a.qkey = 0x80000000; }, EPERM},
                         });
  AttributeLimits privileged = limits();
  privileged.privileged_qkey = true;
  expect_cases(privileged, {{"top bit", IBV_QP_QKEY, [](ibv_qp_attr& a) { a.qkey = 0x80000000; }, 0}});
}

TEST(QpAttributes, PortsOfAddressAndQpAgree) {
  expect_cases(
      limits(),
      {
          {"RTR, port of INIT", IBV_QP_AV | IBV_QP_STATE, [](ibv_qp_attr&) {}, 0},
          {"RTR, other port", IBV_QP_AV | IBV_QP_STATE, [](ibv_qp_attr& a) { a.ah_attr.port_num = 2; },
           EINVAL},
          {"SQD, other port", IBV_QP_AV, [](ibv_qp_attr& a) { a.ah_attr.port_num = 2; }, 0},
          {"SQD, other port twice", IBV_QP_AV | IBV_QP_PORT,
           [](ibv_qp_attr& a) { a.ah_attr.port_num = a.port_num = 2; }, 0},
          {"SQD, two ports", IBV_QP_AV | IBV_QP_PORT, [](ibv_qp_attr& a) { a.ah_attr.port_num = 2; }, EINVAL},
      });
}

TEST(QpAttributes, SendQueueDrainsBeforeRts) {
  AttributeLimits l = limits();
  l.current_state = IBV_QPS_SQD;
  l.sq_draining = true;
  expect_cases(l, {
                      {"to RTS", IBV_QP_STATE, [](ibv_qp_attr& a) { a.qp_state = IBV_QPS_RTS; }, EINVAL},
                      {"to ERR", IBV_QP_STATE, [](ibv_qp_attr& a) { a.qp_state = IBV_QPS_ERR; }, 0},
                      {"to RESET", IBV_QP_STATE, [](ibv_qp_attr& a) { a.qp_state = IBV_QPS_RESET; }, 0},
                  });
  l.sq_draining = false;
  expect_cases(l, {{"drained", IBV_QP_STATE, [](ibv_qp_attr& a) { a.qp_state = IBV_QPS_RTS; }, 0}});
}

TEST(QpAttributes, MigrationNeedsTheCapability) {
  expect_cases(
      limits(),
      {
          {"migrated", IBV_QP_PATH_MIG_STATE, [](ibv_qp_attr& a) { a.path_mig_state = IBV_MIG_MIGRATED; }, 0},
          {"rearm", IBV_QP_PATH_MIG_STATE, [](ibv_qp_attr& a) { a.path_mig_state = IBV_MIG_REARM; }, EINVAL},
          {"alternate path", IBV_QP_ALT_PATH, [](ibv_qp_attr&) {}, EINVAL},
      });
  expect_cases(
      infiniband(),
      {
          {"rearm", IBV_QP_PATH_MIG_STATE, [](ibv_qp_attr& a) { a.path_mig_state = IBV_MIG_REARM; }, 0},
          {"no such state", IBV_QP_PATH_MIG_STATE,
           [](ibv_qp_attr& a) { a.path_mig_state = static_cast<ibv_mig_state>(77); }, EINVAL},
          {"armed", IBV_QP_PATH_MIG_STATE, [](ibv_qp_attr& a) { a.path_mig_state = IBV_MIG_ARMED; }, EINVAL},
          {"alternate path", IBV_QP_ALT_PATH, [](ibv_qp_attr&) {}, 0},
          {"alt port 0", IBV_QP_ALT_PATH, [](ibv_qp_attr& a) { a.alt_port_num = 0; }, EINVAL},
          {"alt ports differ", IBV_QP_ALT_PATH, [](ibv_qp_attr& a) { a.alt_port_num = 2; }, EINVAL},
          {"alt timeout", IBV_QP_ALT_PATH, [](ibv_qp_attr& a) { a.alt_timeout = 32; }, EINVAL},
          {"alt pkey", IBV_QP_ALT_PATH, [](ibv_qp_attr& a) { a.alt_pkey_index = 3; }, EINVAL},
          {"alt address", IBV_QP_ALT_PATH, [](ibv_qp_attr& a) { a.alt_ah_attr.grh.sgid_index = 5; }, EINVAL},
      });
}

TEST(QpAttributes, AlternatePathIsRefusedOnEthernetEvenWithMigration) {
  AttributeLimits l = limits();
  l.path_migration = true;
  expect_cases(l, {{"alternate path", IBV_QP_ALT_PATH, [](ibv_qp_attr&) {}, EINVAL}});
}

TEST(QpAttributes, XrcIgnoresTheHalfItLacks) {
  ibv_qp_attr attr = attributes();
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 200;
  EXPECT_EQ(check_attributes(limits(), IBV_QPT_XRC_SEND, attr, IBV_QP_MAX_DEST_RD_ATOMIC, nullptr), 0);
  EXPECT_EQ(check_attributes(limits(), IBV_QPT_XRC_RECV, attr, IBV_QP_MAX_QP_RD_ATOMIC, nullptr), 0);
}

// ---- addresses ----------------------------------------------------------------------------------------

struct AddressCase {
  const char* what;
  void (*change)(ibv_ah_attr&);
  bool connected;
  int refusal;
};

void expect_addresses(const AttributeLimits& l, std::initializer_list<AddressCase> cases) {
  for (const AddressCase& c : cases) {
    ibv_ah_attr ah = address();
    c.change(ah);
    EXPECT_EQ(check_address(l, ah, c.connected, nullptr), c.refusal) << c.what;
  }
}

TEST(Address, OnAnyLink) {
  for (const AttributeLimits& l : {limits(), infiniband()})
    expect_addresses(
        l, {
               {"good", [](ibv_ah_attr&) {}, true, 0},
               {"port 0", [](ibv_ah_attr& a) { a.port_num = 0; }, true, EINVAL},
               {"port behind", [](ibv_ah_attr& a) { a.port_num = 3; }, true, EINVAL},
               {"last GID", [](ibv_ah_attr& a) { a.grh.sgid_index = 4; }, true, 0},
               {"GID behind", [](ibv_ah_attr& a) { a.grh.sgid_index = 5; }, true, EINVAL},
               {"last service level", [](ibv_ah_attr& a) { a.sl = 15; }, true, 0},
               {"service level behind", [](ibv_ah_attr& a) { a.sl = 16; }, true, EINVAL},
               {"multicast GID, connected", [](ibv_ah_attr& a) { a.grh.dgid.raw[0] = 0xff; }, true, EINVAL},
               {"multicast GID, datagrams", [](ibv_ah_attr& a) { a.grh.dgid.raw[0] = 0xff; }, false, 0},
           });
}

TEST(Address, EthernetNeedsAGrh) {
  expect_addresses(limits(),
                   {
                       {"no GRH, LID 0",
                        [](ibv_ah_attr& a) {
                          a.is_global = 0;
                          a.dlid = 0;
                        },
                        true, EINVAL},
                       {"no GRH, a LID", [](ibv_ah_attr& a) { a.is_global = 0; }, true, EINVAL},
                       {"no GRH, datagrams", [](ibv_ah_attr& a) { a.is_global = 0; }, false, EINVAL},
                       {"GRH, LID 0", [](ibv_ah_attr& a) { a.dlid = 0; }, true, 0},
                   });
}

TEST(Address, InfinibandNeedsALidOrAGrh) {
  expect_addresses(infiniband(),
                   {
                       {"LID alone", [](ibv_ah_attr& a) { a.is_global = 0; }, true, 0},
                       {"LID alone, GID fields not looked at",
                        [](ibv_ah_attr& a) {
                          a.is_global = 0;
                          a.grh.sgid_index = 200;
                        },
                        true, 0},
                       {"neither",
                        [](ibv_ah_attr& a) {
                          a.is_global = 0;
                          a.dlid = 0;
                        },
                        true, EINVAL},
                       {"GRH alone", [](ibv_ah_attr& a) { a.dlid = 0; }, true, 0},
                       {"last unicast LID", [](ibv_ah_attr& a) { a.dlid = 0xbfff; }, true, 0},
                       {"multicast LID, connected", [](ibv_ah_attr& a) { a.dlid = 0xc000; }, true, EINVAL},
                       {"multicast LID, datagrams", [](ibv_ah_attr& a) { a.dlid = 0xc000; }, false, 0},
                   });
}

TEST(Address, IsCheckedAsPartOfTheAttributes) {
  expect_cases(limits(), {{"no GRH", IBV_QP_AV, [](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }, EINVAL}});
}

}  // namespace
}  // namespace verbena
