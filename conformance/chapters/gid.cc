// SPDX-License-Identifier: BSD-2-Clause
//
// GIDs and P_Keys: the two tables of a port.
#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::gid_chapter {
namespace {

class Fixture : public DeviceTest {
 protected:
  uint8_t port() { return device().port_number(); }
  int gid_count() { return device().port().gid_tbl_len; }

  struct Entry {
    int error;
    ibv_gid_entry entry;
  };
  Entry entry_at(int index) {
    Entry out = {};
    out.error = CALL(ibv_query_gid_ex(context(), port(), static_cast<uint32_t>(index), &out.entry, 0));
    return out;
  }

  // Of all ports, as the table query gives them.
  std::vector<ibv_gid_entry> valid_entries() {
    std::vector<ibv_gid_entry> out;
    for (uint32_t number = 1; number <= device().attributes().phys_port_cnt; ++number) {
      ibv_port_attr attr;
      if (ibv_query_port(context(), static_cast<uint8_t>(number), &attr) != 0) continue;
      for (int index = 0; index < attr.gid_tbl_len; ++index) {
        ibv_gid_entry entry;
        if (ibv_query_gid_ex(context(), number, static_cast<uint32_t>(index), &entry, 0) == 0)
          out.push_back(entry);
      }
    }
    return out;
  }

  // The name of its network interface, as the kernel knows it. Empty: it tells none.
  std::string interface_of(const ibv_gid_entry& entry) {
    std::ifstream file("/sys/class/infiniband/" + device().name() + "/ports/" +
                       std::to_string(entry.port_num) + "/gid_attrs/ndevs/" +
                       std::to_string(entry.gid_index));
    std::string out;
    file >> out;
    return out;
  }

  static bool same(const ibv_gid& a, const ibv_gid& b) { return memcmp(a.raw, b.raw, sizeof a.raw) == 0; }
  static bool is_zero(const ibv_gid& gid) { return same(gid, ibv_gid{}); }
};

CONFORMANCE_TEST(gid, EveryEntryCanBeRead, "ibv_query_gid.zero", "ibv_query_gid.stable",
                 "ibv_query_gid.default") {
  int there = 0;
  for (int index = 0; index < gid_count(); ++index) {
    if (entry_at(index).error == ENODATA) continue;  // empty: ibv_query_gid may give -1 or a zero GID
    ibv_gid first, second;
    ABOUT("ibv_query_gid.zero") {
      ASSERT_EQ(CALL(ibv_query_gid(context(), port(), index, &first)), 0) << "index " << index;
      ASSERT_EQ(CALL(ibv_query_gid(context(), port(), index, &second)), 0) << "index " << index;
    }
    ABOUT("ibv_query_gid.stable") EXPECT_TRUE(same(first, second)) << "index " << index;
    there += !is_zero(first);
  }
  const About about("ibv_query_gid.default");
  EXPECT_GE(there, 1);
}

CONFORMANCE_TEST(gid, IndexOutsideTheTableGivesMinusOne, "ibv_query_gid.out-of-range") {
  ibv_gid gid;
  EXPECT_EQ(CALL(ibv_query_gid(context(), port(), gid_count(), &gid)), -1);
  EXPECT_EQ(CALL(ibv_query_gid(context(), port(), -1, &gid)), -1);
}

CONFORMANCE_TEST(gid, UnknownPortGivesMinusOne, "ibv_query_gid.bad-port") {
  ibv_gid gid;
  EXPECT_EQ(CALL(ibv_query_gid(context(), 0, 0, &gid)), -1);
  EXPECT_EQ(CALL(ibv_query_gid(context(), 255, 0, &gid)), -1);
}

CONFORMANCE_TEST(gid, ExtendedQueryGivesTheSameGid, "ibv_query_gid_ex.same-gid",
                 "ibv_query_gid_ex.index-and-port") {
  int compared = 0;
  for (int index = 0; index < gid_count(); ++index) {
    const Entry extended = entry_at(index);
    if (extended.error != 0) continue;
    ibv_gid plain;
    ABOUT("ibv_query_gid_ex.same-gid") {
      ASSERT_EQ(CALL(ibv_query_gid(context(), port(), index, &plain)), 0);
      EXPECT_TRUE(same(plain, extended.entry.gid))
          << gid_text(plain) << " and " << gid_text(extended.entry.gid);
    }
    const About about("ibv_query_gid_ex.index-and-port");
    EXPECT_EQ(extended.entry.gid_index, static_cast<uint32_t>(index));
    EXPECT_EQ(extended.entry.port_num, port());
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

CONFORMANCE_TEST(gid, TypeFitsTheLinkLayer, "ibv_query_gid_ex.type", "ibv_query_gid_ex.roce-type") {
  // iWARP runs on Ethernet, too. Its GIDs are of no RoCE type: the kernel's core gives them that of
  // InfiniBand.
  const bool is_roce = device().is_ethernet() && context()->device->transport_type == IBV_TRANSPORT_IB;
  for (const ibv_gid_entry& entry : valid_entries()) {
    if (entry.port_num != port()) continue;
    ABOUT("ibv_query_gid_ex.type") {
      EXPECT_LE(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
      if (!device().is_ethernet()) {
        EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_IB));
      }
    }
    const About about("ibv_query_gid_ex.roce-type");
    if (is_roce) {
      EXPECT_NE(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_IB));
    }
  }
  const About about("ibv_query_gid_ex.roce-type");
  if (!is_roce) not_claimed("the port is not one of RoCE");
}

CONFORMANCE_TEST(gid, NetworkInterfaceExists, "ibv_query_gid_ex.ndev") {
  for (const ibv_gid_entry& entry : valid_entries()) {
    char name[IF_NAMESIZE];
    if (entry.ndev_ifindex == 0 || if_indextoname(entry.ndev_ifindex, name) != nullptr) continue;
    // In a container: the index is that of the interface's own network namespace.
    const std::string elsewhere = interface_of(entry);
    if (!elsewhere.empty() && if_nametoindex(elsewhere.c_str()) == 0)
      throw NotTested{"the interface " + elsewhere + " is in another network namespace"};
    ADD_FAILURE() << "no interface has the index " << entry.ndev_ifindex;
  }
}

CONFORMANCE_TEST(gid, UnknownFlagsAreRefused, "ibv_query_gid_ex.flags", "ibv_query_gid_table.flags") {
  ibv_gid_entry entry;
  {
    const About about("ibv_query_gid_ex.flags");
    EXPECT_REFUSED(ibv_query_gid_ex(context(), port(), device().gid_index(), &entry, 1u << 31));
  }
  const About about("ibv_query_gid_table.flags");
  std::vector<ibv_gid_entry> entries(valid_entries().size() + 1);
  EXPECT_LT(CALL(ibv_query_gid_table(context(), entries.data(), entries.size(), 1u << 31)), 0);
}

CONFORMANCE_TEST(gid, ExtendedQueryOutsideIsRefused, "ibv_query_gid_ex.out-of-range",
                 "ibv_query_gid_ex.bad-port") {
  ibv_gid_entry entry;
  {
    const About about("ibv_query_gid_ex.out-of-range");
    EXPECT_REFUSED(ibv_query_gid_ex(context(), port(), static_cast<uint32_t>(gid_count()), &entry, 0));
  }
  const About about("ibv_query_gid_ex.bad-port");
  EXPECT_REFUSED(ibv_query_gid_ex(context(), 0, 0, &entry, 0));
  EXPECT_REFUSED(ibv_query_gid_ex(context(), device().attributes().phys_port_cnt + 1u, 0, &entry, 0));
}

CONFORMANCE_TEST(gid, EmptyEntryGivesEnodata, "ibv_query_gid_ex.enodata") {
  int empty = 0;
  for (int index = 0; index < gid_count(); ++index) {
    const Entry entry = entry_at(index);
    if (entry.error == 0 && !is_zero(entry.entry.gid)) continue;
    ++empty;
    EXPECT_EQ(entry.error, ENODATA) << "index " << index;
  }
  if (empty == 0) throw NotTested{"no entry of this port's GID table is empty"};
}

CONFORMANCE_TEST(gid, TableQueryGivesWhatSingleQueriesGive, "ibv_query_gid_table.entries",
                 "ibv_query_gid_table.valid-only", "ibv_query_gid_table.exact") {
  const auto single = valid_entries();
  ASSERT_FALSE(single.empty());
  std::vector<ibv_gid_entry> table(single.size());
  const ssize_t count = CALL(ibv_query_gid_table(context(), table.data(), table.size(), 0));
  ABOUT("ibv_query_gid_table.exact") ASSERT_GE(count, 0);
  ABOUT("ibv_query_gid_table.entries") ASSERT_EQ(count, static_cast<ssize_t>(single.size()));
  for (size_t i = 0; i < table.size(); ++i) {
    ABOUT("ibv_query_gid_table.valid-only") EXPECT_FALSE(is_zero(table[i].gid)) << "entry " << i;
    const bool known = std::any_of(single.begin(), single.end(), [&](const ibv_gid_entry& entry) {
      return entry.gid_index == table[i].gid_index && entry.port_num == table[i].port_num &&
             entry.gid_type == table[i].gid_type && entry.ndev_ifindex == table[i].ndev_ifindex &&
             same(entry.gid, table[i].gid);
    });
    const About about("ibv_query_gid_table.entries");
    EXPECT_TRUE(known) << "index " << table[i].gid_index << " of port " << table[i].port_num;
  }
}

CONFORMANCE_TEST(gid, TableQueryNeedsRoomForAll, "ibv_query_gid_table.too-small",
                 "ibv_query_gid_table.zero-entries") {
  const size_t count = valid_entries().size();
  std::vector<ibv_gid_entry> table(count + 1);
  ABOUT("ibv_query_gid_table.zero-entries")
  EXPECT_LT(CALL(ibv_query_gid_table(context(), table.data(), 0, 0)), 0);
  const About about("ibv_query_gid_table.too-small");
  if (count <= 1) throw NotTested{"the device has one valid GID only"};
  EXPECT_LT(CALL(ibv_query_gid_table(context(), table.data(), count - 1, 0)), 0);
}

CONFORMANCE_TEST(gid, PkeyTableCanBeRead, "ibv_query_pkey.zero", "ibv_query_pkey.network-order") {
  bool has_default = false;
  for (int index = 0; index < device().port().pkey_tbl_len; ++index) {
    uint16_t pkey = 0;
    ABOUT("ibv_query_pkey.zero")
    EXPECT_EQ(CALL(ibv_query_pkey(context(), port(), index, &pkey)), 0) << "index " << index;
    has_default |= (ntohs(pkey) & 0x7fff) == 0x7fff;
  }
  const About about("ibv_query_pkey.network-order");
  if (!has_default) throw NotTested{"the port's table does not have the default P_Key"};
}

CONFORMANCE_TEST(gid, PkeyQueryOutsideGivesMinusOne, "ibv_query_pkey.out-of-range",
                 "ibv_query_pkey.bad-port") {
  uint16_t pkey;
  {
    const About about("ibv_query_pkey.out-of-range");
    EXPECT_EQ(CALL(ibv_query_pkey(context(), port(), device().port().pkey_tbl_len, &pkey)), -1);
    EXPECT_EQ(CALL(ibv_query_pkey(context(), port(), -1, &pkey)), -1);
  }
  const About about("ibv_query_pkey.bad-port");
  EXPECT_EQ(CALL(ibv_query_pkey(context(), 0, 0, &pkey)), -1);
  EXPECT_EQ(CALL(ibv_query_pkey(context(), 255, 0, &pkey)), -1);
}

CONFORMANCE_TEST(gid, PkeyIndexLeadsToThePkey, "ibv_get_pkey_index.found", "ibv_get_pkey_index.absent",
                 "ibv_get_pkey_index.bad-port") {
  std::vector<uint16_t> table(device().port().pkey_tbl_len);
  for (size_t i = 0; i < table.size(); ++i)
    ASSERT_EQ(ibv_query_pkey(context(), port(), static_cast<int>(i), &table[i]), 0);
  for (const uint16_t pkey : table) {
    if (pkey == 0) continue;  // an unused entry
    const int index = CALL(ibv_get_pkey_index(context(), port(), pkey));
    ASSERT_GE(index, 0);
    ASSERT_LT(index, static_cast<int>(table.size()));
    EXPECT_EQ(table[static_cast<size_t>(index)], pkey);
  }
  uint16_t absent = htons(0x1234);
  while (std::find(table.begin(), table.end(), absent) != table.end()) ++absent;
  {
    const About about("ibv_get_pkey_index.absent");
    EXPECT_EQ(CALL(ibv_get_pkey_index(context(), port(), absent)), -1);
  }
  const About about("ibv_get_pkey_index.bad-port");
  EXPECT_EQ(CALL(ibv_get_pkey_index(context(), 0, htons(0xffff))), -1);
}

}  // namespace
}  // namespace conformance::gid_chapter
