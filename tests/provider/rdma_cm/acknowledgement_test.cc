// SPDX-License-Identifier: BSD-2-Clause
//
// Which waits of librdmacm are looked at, and that nothing is said of what is no wait. The waits themselves:
// rdma_cm_device/library_test.cc.
#include <pthread.h>
#include <rdma/rdma_user_cm.h>

#include <future>
#include <thread>

#include "fixture.h"

namespace verbena::test {
namespace {

constexpr size_t kPublicId = 416;  // sizeof(rdma_cm_id), which cannot be included beside rdma_user_cm.h

// librdmacm's memory of an id, as acknowledgement_watch.cc reads it.
struct IdInLibrdmacm {
  alignas(8) uint8_t id[kPublicId] = {};
  uint64_t other[3] = {};
  int acknowledged = 0;
  int more[2] = {};
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  uint32_t number = 0;
};

class Acknowledgements : public RdmaCm {
 protected:
  // An id with two events that have been fetched.
  void make_id(uint64_t uid) {
    id_ = create(uid);
    memory_.number = id_;
    rdma_ucm_event_resp event;
    for (int i = 0; i < 2; ++i) {
      raise(event_of(fake.newest, cm::EventType::kRouteResolved));
      ASSERT_EQ(get_event(&event), 0);
    }
  }
  // The wait of rdma_destroy_id(3).
  void await(int events) {
    pthread_mutex_lock(&memory_.mutex);
    while (memory_.acknowledged < events) pthread_cond_wait(&memory_.changed, &memory_.mutex);
    pthread_mutex_unlock(&memory_.mutex);
  }
  void acknowledge(int events) {
    pthread_mutex_lock(&memory_.mutex);
    memory_.acknowledged = events;
    pthread_cond_signal(&memory_.changed);
    pthread_mutex_unlock(&memory_.mutex);
  }
  uint32_t id_ = 0;
  IdInLibrdmacm memory_;
};

TEST_F(Acknowledgements, OfAllEventsLeaveNothingToLookAt) {
  make_id(address_of(memory_));
  memory_.acknowledged = 2;
  ASSERT_EQ(destroy(id_), 0);
  EXPECT_EQ(make_later_calls(), 0);
}

TEST_F(Acknowledgements, OfAnotherLibraryAreNotLookedAt) {
  make_id(address_of(memory_));
  memory_.number = id_ + 1;
  ASSERT_EQ(destroy(id_), 0);
  EXPECT_EQ(make_later_calls(), 0);
}

TEST_F(Acknowledgements, AreNotReadFromMemoryThatIsNotThere) {
  make_id(kNowhere);
  ASSERT_EQ(destroy(id_), 0);
  EXPECT_EQ(make_later_calls(), 0);
}

TEST_F(Acknowledgements, ThatAreMissingAreNamed) {
  make_id(address_of(memory_));
  testing::internal::CaptureStderr();
  std::promise<int> destroyed;
  std::thread program([&] {
    destroyed.set_value(destroy(id_));
    await(2);
  });
  EXPECT_EQ(destroyed.get_future().get(), 0);
  EXPECT_GE(make_later_calls(), 1);
  acknowledge(2);
  program.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("rdma_destroy_id: id 0x"), std::string::npos) << said;
  EXPECT_NE(said.find("waits for 2 of 2 events, which rdma_get_cm_event"), std::string::npos) << said;
}

// Events are missing, but the thread sleeps elsewhere.
TEST_F(Acknowledgements, OfAThreadThatWaitsForSomethingElseAreNotNamed) {
  make_id(address_of(memory_));
  testing::internal::CaptureStderr();
  std::promise<int> destroyed;
  std::promise<void> end;
  std::thread program([&] {
    destroyed.set_value(destroy(id_));
    end.get_future().wait();
  });
  EXPECT_EQ(destroyed.get_future().get(), 0);
  EXPECT_GE(make_later_calls(), 1);
  end.set_value();
  program.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// The thread sleeps on the id, but because of a signal without an acknowledgement that is missing.
TEST_F(Acknowledgements, ThatHaveAllComeAreNotNamed) {
  make_id(address_of(memory_));
  testing::internal::CaptureStderr();
  std::promise<int> destroyed;
  std::thread program([&] {
    destroyed.set_value(destroy(id_));
    await(3);
  });
  EXPECT_EQ(destroyed.get_future().get(), 0);
  acknowledge(2);
  EXPECT_GE(make_later_calls(), 1);
  acknowledge(3);
  program.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace verbena::test
