// SPDX-License-Identifier: BSD-2-Clause
//
// Device and port: the list of devices, opening and importing.
#include <net/if.h>
#include <unistd.h>

#include <memory>

#include "support/fixture.h"
#include "support/objects.h"

namespace conformance::device_list_chapter {
namespace {

using Fixture = DeviceTest;

struct FreeList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
using List = std::unique_ptr<ibv_device*, FreeList>;

// The device under test in a list.
ibv_device* find(const List& list) {
  for (ibv_device** device = list.get(); device != nullptr && *device != nullptr; ++device)
    if (options().device == ibv_get_device_name(*device)) return *device;
  throw Deviation{"the device under test is no longer in the list of devices", Where::current()};
}

struct CloseContext {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
};
using Context = std::unique_ptr<ibv_context, CloseContext>;

CONFORMANCE_TEST(device, ListCountsItsEntries, "ibv_get_device_list.null-terminated",
                 "ibv_get_device_list.count") {
  int count = -1;
  const List list(CALL(ibv_get_device_list(&count)));
  ASSERT_TRUE(list);
  int entries = 0;
  while (entries < count && list.get()[entries] != nullptr) ++entries;
  ABOUT("ibv_get_device_list.count") EXPECT_EQ(entries, count);
  ABOUT("ibv_get_device_list.null-terminated") EXPECT_EQ(list.get()[count], nullptr);
}

CONFORMANCE_TEST(device, ListNeedsNoCount, "ibv_get_device_list.count-optional") {
  const List list(CALL(ibv_get_device_list(nullptr)));
  ASSERT_TRUE(list);
  EXPECT_NE(find(list), nullptr);
}

CONFORMANCE_TEST(device, OpenDeviceOutlivesTheList, "ibv_get_device_list.free-after-open",
                 "ibv_open_device.context", "ibv_close_device.zero") {
  List list(CALL(ibv_get_device_list(nullptr)));
  Context opened(CALL(ibv_open_device(find(list))));
  ABOUT("ibv_open_device.context") ASSERT_TRUE(opened);
  list.reset();
  ABOUT("ibv_open_device.context")
  EXPECT_STREQ(ibv_get_device_name(opened->device), options().device.c_str());
  ibv_device_attr attributes;
  ABOUT("ibv_get_device_list.free-after-open") EXPECT_SUCCEEDS(ibv_query_device(opened.get(), &attributes));
  ABOUT("ibv_close_device.zero") EXPECT_EQ(CALL(ibv_close_device(opened.release())), 0);
}

CONFORMANCE_TEST(device, NameGuidAndIndexAreTheSameInEveryList, "ibv_get_device_name.name",
                 "ibv_get_device_name.stable", "ibv_get_device_index.value", "ibv_get_device_index.stable") {
  const List first(CALL(ibv_get_device_list(nullptr)));
  const List second(CALL(ibv_get_device_list(nullptr)));
  ibv_device *one = find(first), *other = find(second);
  ABOUT("ibv_get_device_name.name") EXPECT_STRNE(CALL(ibv_get_device_name(one)), "");
  ABOUT("ibv_get_device_name.stable")
  EXPECT_STREQ(ibv_get_device_name(one), ibv_get_device_name(other));
  ABOUT("ibv_get_device_index.value") EXPECT_GE(CALL(ibv_get_device_index(one)), -1);
  ABOUT("ibv_get_device_index.stable")
  EXPECT_EQ(ibv_get_device_index(one), CALL(ibv_get_device_index(other)));
}

CONFORMANCE_TEST(device, GuidIsTheNodeGuid, "ibv_get_device_guid.query") {
  EXPECT_EQ(CALL(ibv_get_device_guid(context()->device)), device().attributes().node_guid);
}

CONFORMANCE_TEST(device, OpensMoreThanOnce, "ibv_open_device.several", "ibv_close_device.others-live") {
  const List list(CALL(ibv_get_device_list(nullptr)));
  Context one(CALL(ibv_open_device(find(list))));
  Context other(CALL(ibv_open_device(find(list))));
  ABOUT("ibv_open_device.several") {
    ASSERT_TRUE(one && other);
    EXPECT_NE(one.get(), other.get());
  }
  Pd pd(CALL(ibv_alloc_pd(other.get())));
  ABOUT("ibv_open_device.several") ASSERT_NE(pd, nullptr);
  const About about("ibv_close_device.others-live");
  EXPECT_EQ(CALL(ibv_close_device(one.release())), 0);
  const Buffer buffer(64);
  Mr mr = make_mr(pd, buffer);
  EXPECT_SUCCEEDS(mr.destroy());
  EXPECT_SUCCEEDS(pd.destroy());
}

// Imports a copy of the descriptor. Throws NotClaimed where the device properly refuses that.
Context import_of(ibv_context* original) {
  const int copy = dup(original->cmd_fd);
  Context imported(CALL(ibv_import_device(copy)));
  const int error = errno;
  if (!imported) close(copy);
  if (!imported && is_refusal(error)) throw NotClaimed{"ibv_import_device refused with " + errno_text(error)};
  if (!imported)
    throw Deviation{"expected: a context; seen: null, errno " + errno_text(error), Where::current()};
  return imported;
}

CONFORMANCE_TEST(device, ImportedContextWorks, "ibv_import_device.usable", "ibv_import_device.close") {
  Context imported = import_of(context());
  ibv_device_attr attributes = {};
  ABOUT("ibv_import_device.usable") {
    EXPECT_SUCCEEDS(ibv_query_device(imported.get(), &attributes));
    EXPECT_EQ(attributes.node_guid, device().attributes().node_guid);
  }
  const About about("ibv_import_device.close");
  EXPECT_EQ(CALL(ibv_close_device(imported.release())), 0);
  EXPECT_SUCCEEDS(ibv_query_device(context(), &attributes));
}

CONFORMANCE_TEST(device, ImportOfAnotherDescriptorIsRefused, "ibv_import_device.bad-fd") {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(CALL(ibv_import_device(ends[0])), nullptr);
  close(ends[1]);
}

CONFORMANCE_TEST(device, ImportedPdTakesAnMr, "ibv_import_pd.usable", "ibv_import_pd.unimport") {
  Pd pd = make_pd(device());
  const Context imported = import_of(context());
  ibv_pd* same = CALL(ibv_import_pd(imported.get(), pd->handle));
  if (same == nullptr && is_refusal(errno))
    throw NotClaimed{"ibv_import_pd refused with " + errno_text(errno)};
  const Buffer buffer(64);
  ABOUT("ibv_import_pd.usable") {
    ASSERT_NE(same, nullptr);
    Mr mr = make_mr(same, buffer);
    ASSERT_SUCCEEDS(mr.destroy());
  }
  const About about("ibv_import_pd.unimport");
  CALL(ibv_unimport_pd(same));
  Mr after = make_mr(pd, buffer);
  EXPECT_SUCCEEDS(after.destroy());
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(device, ImportedMrHasTheKeys, "ibv_import_mr.keys", "ibv_import_mr.addr") {
  const Pd pd = make_pd(device());
  const Buffer buffer(64);
  const Mr mr = make_mr(pd, buffer);
  const Context imported = import_of(context());
  ibv_pd* same_pd = CALL(ibv_import_pd(imported.get(), pd->handle));
  if (same_pd == nullptr && is_refusal(errno))
    throw NotClaimed{"ibv_import_pd refused with " + errno_text(errno)};
  ASSERT_NE(same_pd, nullptr);
  ibv_mr* same = CALL(ibv_import_mr(same_pd, mr->handle));
  if (same == nullptr && is_refusal(errno))
    throw NotClaimed{"ibv_import_mr refused with " + errno_text(errno)};
  ASSERT_NE(same, nullptr);
  {
    const About keys("ibv_import_mr.keys");
    EXPECT_EQ(same->lkey, mr->lkey);
    EXPECT_EQ(same->rkey, mr->rkey);
  }
  {
    const About address("ibv_import_mr.addr");
    EXPECT_EQ(same->addr, nullptr);
  }
  CALL(ibv_unimport_mr(same));
  CALL(ibv_unimport_pd(same_pd));
}

}  // namespace
}  // namespace conformance::device_list_chapter
