// SPDX-License-Identifier: BSD-2-Clause
//
// The queue of events and the tokens that stand for them.
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "fixture.h"

namespace verbena::test {
namespace {

class Events : public RdmaCm {
 protected:
  void SetUp() override {
    RdmaCm::SetUp();
    id_ = create();
    manager_ = fake.newest;
  }
  void raise_some(int count) {
    for (int i = 0; i < count; ++i) raise(event_of(manager_, cm::EventType::kRouteResolved, i));
  }
  int tokens() const {
    int count = -1;
    ioctl(channel_.fd(), FIONREAD, &count);
    return count;
  }
  uint32_t id_;
  cm::Id* manager_;
};

TEST_F(Events, CarryUidIdTypeAndStatus) {
  raise(event_of(manager_, cm::EventType::kAddressError, -ETIMEDOUT));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.uid, 77u);
  EXPECT_EQ(event.id, id_);
  EXPECT_EQ(event.event, static_cast<uint32_t>(cm::EventType::kAddressError));
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
}

TEST_F(Events, CarryConnectionParameters) {
  cm::Event raised = event_of(manager_, cm::EventType::kConnectResponse);
  raised.connection = {.qp_number = 5,
                       .qkey = 0,
                       .private_data = {{1, 2, 3}, 3},
                       .srq = true,
                       .responder_resources = 4,
                       .initiator_depth = 6,
                       .flow_control = 1,
                       .retry_count = 7,
                       .rnr_retry_count = 2};
  raised.ece = {8, 9};
  raise(raised);
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  const rdma_ucm_conn_param& told = event.param.conn;
  EXPECT_EQ(told.qp_num, 5u);
  EXPECT_EQ(told.private_data_len, 3);
  EXPECT_EQ(told.private_data[2], 3);
  EXPECT_EQ(told.srq, 1);
  EXPECT_EQ(told.responder_resources, 4);
  EXPECT_EQ(told.initiator_depth, 6);
  EXPECT_EQ(told.flow_control, 1);
  EXPECT_EQ(told.retry_count, 7);
  EXPECT_EQ(told.rnr_retry_count, 2);
  EXPECT_EQ(event.ece.vendor_id, 8u);
  EXPECT_EQ(event.ece.attr_mod, 9u);
}

TEST_F(Events, CarryDatagramParameters) {
  cm::Event raised = event_of(manager_, cm::EventType::kEstablished);
  raised.is_datagram = true;
  raised.datagram.qp_number = 5;
  raised.datagram.qkey = 0x01234567;
  raised.datagram.address.is_global = 1;
  raised.datagram.address.grh.dgid.raw[15] = 9;
  raised.datagram.private_data = {{1}, 1};
  raise(raised);
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.param.ud.qp_num, 5u);
  EXPECT_EQ(event.param.ud.qkey, 0x01234567u);
  EXPECT_EQ(event.param.ud.ah_attr.is_global, 1);
  EXPECT_EQ(event.param.ud.ah_attr.grh.dgid[15], 9);
  EXPECT_EQ(event.param.ud.private_data_len, 1);
}

TEST_F(Events, ComeInTheOrderTheyWereRaised) {
  raise_some(100);
  rdma_ucm_event_resp event;
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_EQ(get_event(&event), 0);
    ASSERT_EQ(event.status, i);
  }
}

TEST_F(Events, MakeTheDescriptorReadable) {
  EXPECT_FALSE(channel_.readable());
  raise_some(2);
  rdma_ucm_event_resp event;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(channel_.readable());
    ASSERT_EQ(get_event(&event), 0);
  }
  EXPECT_FALSE(channel_.readable());
}

TEST_F(Events, EachIsAnEdgeForEpoll) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest = {.events = EPOLLIN | EPOLLET, .data = {}};
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, channel_.fd(), &interest), 0);
  for (int i = 0; i < 3; ++i) {
    raise_some(1);
    epoll_event seen;
    EXPECT_EQ(epoll_wait(epoll, &seen, 1, 5000), 1) << i;
    EXPECT_EQ(epoll_wait(epoll, &seen, 1, 0), 0) << i;
  }
  close(epoll);
}

TEST_F(Events, NoneIsEagainWhereNobodyWaits) {
  set_nonblocking(channel_);
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event(&event), EAGAIN);
}

TEST_F(Events, NonblockingFromTheStart) {
  Channel channel(O_RDWR | O_NONBLOCK);
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event_on(channel, &event), EAGAIN);
}

TEST_F(Events, AreWaitedFor) {
  rdma_ucm_event_resp event;
  std::thread reader([&] { EXPECT_EQ(get_event(&event), 0); });
  raise_some(1);
  reader.join();
  EXPECT_EQ(event.id, id_);
}

TEST_F(Events, WaitingEndsWithASignal) {
  struct sigaction action = {};
  struct sigaction before;
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<int> answer{-1};
  std::thread reader([&] {
    rdma_ucm_event_resp event;
    answer = get_event(&event);
  });
  // The signal counts only when it finds the thread waiting.
  while (answer.load() < 0) {
    pthread_kill(reader.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(answer.load(), EINTR);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Events, SurviveAResponseThatIsNotMemory) {
  raise_some(1);
  const rdma_ucm_get_event request = {.response = kNowhere};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_GET_EVENT, request, sizeof(rdma_ucm_event_resp)), EFAULT);
  EXPECT_TRUE(channel_.readable());
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event(&event), 0);
}

TEST_F(Events, OldResponseWithoutEceIsFilledAsFarAsItGoes) {
  raise_some(1);
  struct {
    uint8_t bytes[offsetof(rdma_ucm_event_resp, reserved)];
    uint8_t beyond[16];
  } response;
  memset(&response, 0xee, sizeof response);
  const rdma_ucm_get_event request = {.response = address_of(response)};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_GET_EVENT, request, sizeof response.bytes), 0);
  for (const uint8_t byte : response.beyond) EXPECT_EQ(byte, 0xee);
}

TEST_F(Events, TokensThatTheProgramStoleComeBack) {
  raise_some(2);
  char stolen[2];
  ASSERT_EQ(read(channel_.fd(), stolen, 2), 2);
  set_nonblocking(channel_);
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event(&event), 0);
  EXPECT_EQ(tokens(), 1);
}

TEST_F(Events, MoreThanAPipeHoldsAreAllDelivered) {
  constexpr int kMany = 70000;
  raise_some(kMany);
  set_nonblocking(channel_);
  rdma_ucm_event_resp event;
  int fetched = 0;
  while (get_event(&event) == 0) ++fetched;
  EXPECT_EQ(fetched, kMany);
}

TEST_F(Events, SeveralReadersFetchEachOnce) {
  constexpr int kMany = 400;
  std::vector<std::atomic<int>> seen(kMany);
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i)
    readers.emplace_back([&] {
      rdma_ucm_event_resp event;
      for (int n = 0; n < kMany / 4; ++n)
        if (get_event(&event) == 0) ++seen[event.status];
    });
  raise_some(kMany);
  for (std::thread& reader : readers) reader.join();
  for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
  EXPECT_EQ(tokens(), 0);
}

// A reader that holds a token finds the events gone, and waits on instead of failing.
TEST_F(Events, DestroyedBesideReadersDoNotConfuseThem) {
  const uint32_t other = create(88);
  cm::Id* other_manager = fake.newest;
  std::atomic<int> fetched{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      rdma_ucm_event_resp event;
      do {
        ASSERT_EQ(get_event(&event), 0);
        ++fetched;
      } while (event.event != static_cast<uint32_t>(cm::EventType::kDisconnected));
    });
  for (int i = 0; i < 50; ++i) raise(event_of(other_manager, cm::EventType::kRouteResolved));
  EXPECT_EQ(destroy(other), 0);
  for (int i = 0; i < 3; ++i) raise(event_of(manager_, cm::EventType::kDisconnected));
  for (std::thread& reader : readers) reader.join();
  EXPECT_GE(fetched.load(), 3);
  EXPECT_EQ(tokens(), 0);
}

TEST_F(Events, OfAnIdNobodyHasAcceptedAreNotTold) {
  listen(id_, 1);
  ASSERT_TRUE(raise_request(manager_));
  cm::Id* fresh = fake.newest;
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  raise(event_of(fresh, cm::EventType::kDisconnected));
  EXPECT_FALSE(channel_.readable());
}

TEST_F(Events, OfAnAcceptedIdCarryTheUidThatAcceptGave) {
  listen(id_, 1);
  ASSERT_TRUE(raise_request(manager_));
  cm::Id* fresh = fake.newest;
  rdma_ucm_event_resp request;
  ASSERT_EQ(get_event(&request), 0);
  ASSERT_EQ(accept(request.id, 99), 0);
  raise(event_of(fresh, cm::EventType::kEstablished));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.uid, 99u);
  EXPECT_EQ(event.id, request.id);
}

TEST_F(Events, RaisedWithinAcceptAreTold) {
  listen(id_, 1);
  ASSERT_TRUE(raise_request(manager_));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  fake.during_call = event_of(fake.newest, cm::EventType::kEstablished);
  fake.raise_in = "accept";
  ASSERT_EQ(accept(event.id, 99), 0);
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.uid, 99u);
}

TEST_F(Events, RaisedWithinAcceptAreToldBeforeLaterOnes) {
  listen(id_, 2);
  ASSERT_TRUE(raise_request(manager_));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  fake.during_call = event_of(fake.newest, cm::EventType::kEstablished);
  fake.raise_in = "accept";
  fake.then = [&] { raise_request(manager_); };
  ASSERT_EQ(accept(event.id, 99), 0);
  for (const cm::EventType type : {cm::EventType::kEstablished, cm::EventType::kConnectRequest}) {
    ASSERT_EQ(get_event(&event), 0);
    EXPECT_EQ(event.event, static_cast<uint32_t>(type));
  }
}

TEST_F(Events, RaisedWithinAnAcceptThatFailsAreNot) {
  listen(id_, 1);
  ASSERT_TRUE(raise_request(manager_));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  fake.during_call = event_of(fake.newest, cm::EventType::kRejected);
  fake.raise_in = "accept";
  fake.error = EINVAL;
  EXPECT_EQ(accept(event.id, 99), EINVAL);
  fake.error = 0;
  EXPECT_FALSE(channel_.readable());
}

// rdma_write_cm_event(3), and RDMA_CM_EVENT_INTERNAL of rdma_resolve_addrinfo(3).
TEST_F(Events, MayBeWrittenByTheProgram) {
  raise_some(1);
  for (const uint32_t type : {rdma_cm::kUserEvent, rdma_cm::kInternalEvent}) {
    const rdma_cm::WriteCmEvent request = {id_, 0, type, 5, 0x1234'5678'9abc'def0};
    EXPECT_EQ(channel_.command(rdma_cm::kWriteCmEvent, request), 0);
  }
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.event, static_cast<uint32_t>(cm::EventType::kRouteResolved));
  for (const uint32_t type : {rdma_cm::kUserEvent, rdma_cm::kInternalEvent}) {
    ASSERT_EQ(get_event(&event), 0);
    EXPECT_EQ(event.uid, 77u);
    EXPECT_EQ(event.id, id_);
    EXPECT_EQ(event.event, type);
    EXPECT_EQ(event.status, 5);
    uint64_t argument;
    std::memcpy(&argument, &event.param, sizeof argument);
    EXPECT_EQ(argument, 0x1234'5678'9abc'def0u);
  }
  EXPECT_FALSE(channel_.readable());
}

TEST_F(Events, OfTheConnectionManagerCannotBeWritten) {
  const rdma_cm::WriteCmEvent established = {id_, 0, static_cast<uint32_t>(cm::EventType::kEstablished), 0,
                                             0};
  EXPECT_EQ(channel_.command(rdma_cm::kWriteCmEvent, established), EINVAL);
  const rdma_cm::WriteCmEvent foreign = {id_ + 1, 0, rdma_cm::kUserEvent, 0, 0};
  EXPECT_EQ(channel_.command(rdma_cm::kWriteCmEvent, foreign), ENOENT);
  EXPECT_FALSE(channel_.readable());
}

TEST_F(Events, ConnectionRequestsBeyondTheBacklogAreRefused) {
  listen(id_, 2);
  EXPECT_TRUE(raise_request(manager_));
  EXPECT_TRUE(raise_request(manager_));
  EXPECT_FALSE(raise_request(manager_));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_TRUE(raise_request(manager_));
}

TEST_F(Events, BacklogThatIsNoneIsTheLargest) {
  listen(id_, 0);
  EXPECT_EQ(fake.backlog, 1024);
  listen(id_, 5000);
  EXPECT_EQ(fake.backlog, 1024);
}

TEST_F(Events, ClosedChannelRaisesNoSignalInTheProcessThatRaisesEvents) {
  ::close(channel_.release());
  raise_some(1);  // SIGPIPE would end the process
  end_abandoned_pipes();
}

}  // namespace
}  // namespace verbena::test
