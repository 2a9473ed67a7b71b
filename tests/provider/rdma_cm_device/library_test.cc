// SPDX-License-Identifier: BSD-2-Clause
//
// The first steps of the machine's own librdmacm over the device file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>

namespace {

class Librdmacm : public ::testing::Test {
 protected:
  void SetUp() override {
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr) << strerror(errno);
    ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0) << strerror(errno);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  void TearDown() override {
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }
  int resolve() { return rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address_), 2000); }
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  sockaddr_in address_ = {};
};

TEST_F(Librdmacm, AddressIsResolvedToTheDevice) {
  ASSERT_EQ(resolve(), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_ack_cm_event(event);
  ASSERT_NE(id_->verbs, nullptr);
  EXPECT_EQ(id_->port_num, 1);
}

TEST_F(Librdmacm, NoEventIsAgainWhereNobodyWaits) {
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Librdmacm, ThreadThatWaitsForAnEventCanBeCancelled) {
  pthread_t waiting;
  const auto wait = [](void* channel) -> void* {
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(static_cast<rdma_event_channel*>(channel), &event);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&waiting, nullptr, wait, channel_), 0);
  ASSERT_EQ(pthread_cancel(waiting), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(waiting, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  // The channel still works.
  ASSERT_EQ(resolve(), 0);
  pollfd entry = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 10000), 1);
}

TEST_F(Librdmacm, IdMovesToAnotherChannelWithItsEvent) {
  rdma_event_channel* other = rdma_create_event_channel();
  ASSERT_EQ(resolve(), 0);
  pollfd entry = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&entry, 1, 10000), 1);
  ASSERT_EQ(rdma_migrate_id(id_, other), 0) << strerror(errno);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(other, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(other);
  ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0);
}

}  // namespace
