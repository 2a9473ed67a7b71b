// SPDX-License-Identifier: BSD-2-Clause
//
// Queue pairs of two nodes: refusals, missing objects, and connections that break.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "observe/log.h"
#include "unit/engine/played_node.h"
#include "unit/engine/two_nodes.h"

namespace verbena {
namespace {

ibv_qp_state state_of(Qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(query_qp(qp, &attr, &init), 0);
  return attr.qp_state;
}

bool becomes(const End& end, ibv_qp_state wanted) {
  return eventually([&] { return state_of(end.qp.get()) == wanted; });
}

void wait_for_the_other(End& end) {
  end.start();
  end.together();
}

TEST(RemoteNode, ASendWaitsForItsReceive) {
  play(
      [](End& end) {
        end.start();
        ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, 100)}), 0);
        // It has been there in vain.
        EXPECT_TRUE(eventually([&] {
          ibv_wc wc;
          EXPECT_EQ(poll_cq(end.send_cq.get(), 1, &wc), 0);
          return end.qp->shared->rnr_naks.load() >= 2;
        }));
        end.together();
        EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS);
        end.together();
      },
      [](End& end) {
        end.start();
        end.together();
        ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(0, 100)}), 0);
        EXPECT_EQ(end.received().byte_len, 100u);
        end.together();
      });
}

// The responder's process explains what it refuses another node: where the request came from, what it wanted,
// and what its region has.
TEST(RemoteNode, ARefusalIsLoggedByTheResponder) {
  const LogLevel before = std::exchange(log_level, LogLevel::kWarn);  // before there are threads
  play(
      [](End& end) {
        testing::internal::CaptureStderr();
        end.start();
        ASSERT_EQ(end.write_there(0, 1 << 24, 100), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_REM_ACCESS_ERR);
        end.together();
        testing::internal::GetCapturedStderr();  // that the request fails
      },
      [](End& end) {
        testing::internal::CaptureStderr();
        end.start();
        end.together();
        EXPECT_TRUE(becomes(end, IBV_QPS_ERR));
        const std::string said = testing::internal::GetCapturedStderr();
        char request[300];
        snprintf(request, sizeof request,
                 "QP 0x%06x refuses RDMA_WRITE of 100 bytes from QP 0x%06x of ", qp_number(end.qp.get()),
                 end.peer.qpn);
        char region[300];
        snprintf(region, sizeof region,
                 "; rkey 0x%x, address 0x%llx, length 100; its region: address 0x%llx, length ",
                 end.memory.rkey(), static_cast<unsigned long long>(end.memory.address() + (1 << 24)),
                 static_cast<unsigned long long>(end.memory.address()));
        EXPECT_NE(said.find(request), std::string::npos) << said;
        EXPECT_EQ(said.find(std::string(request) + "process"), std::string::npos) << said;
        EXPECT_NE(said.find(region), std::string::npos) << said;
      });
  log_level = before;
}

TEST(RemoteNode, RnrRetriesRunOut) {
  play(
      [](End& end) {
        end.start();
        ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, 100)}), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
        EXPECT_EQ(state_of(end.qp.get()), IBV_QPS_ERR);
        end.together();
      },
      wait_for_the_other, {.rnr_retry = 2});
}

TEST(RemoteNode, AWrongRkeyFailsAtBothEnds) {
  play(
      [](End& end) {
        end.start();
        ++end.peer.rkey;
        ASSERT_EQ(end.write_there(0, 0, 100, 1), 0);
        ASSERT_EQ(end.write_there(0, 0, 100, 2), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_REM_ACCESS_ERR);
        EXPECT_EQ(end.sent().status, IBV_WC_WR_FLUSH_ERR);
        end.together();
      },
      [](End& end) {
        end.start();
        end.together();
        EXPECT_TRUE(becomes(end, IBV_QPS_ERR));
      });
}

TEST(RemoteNode, AReadOfWhatIsNotRegisteredIsRefused) {
  play(
      [](End& end) {
        end.start();
        ASSERT_EQ(end.read_there(0, end.memory.size() - 50, 100), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_REM_ACCESS_ERR);
        end.together();
      },
      wait_for_the_other);
}

TEST(RemoteNode, AMessageTooLongForItsReceiveFailsAtBothEnds) {
  for (const uint32_t size : {200u, 100000u})
    play(
        [&](End& end) {
          end.start();
          end.together();
          ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, size)}), 0);
          EXPECT_EQ(end.sent().status, IBV_WC_REM_INV_REQ_ERR);
          end.together();
        },
        [](End& end) {
          end.start();
          ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(0, 100)}), 0);
          end.together();
          EXPECT_EQ(end.received().status, IBV_WC_LOC_LEN_ERR);
          end.together();
        });
}

TEST(RemoteNode, AWrongLkeyFailsAfterWhatWasBeforeIt) {
  play(
      [](End& end) {
        end.start();
        Sges wrong{end.memory.sge(0, 100)};
        ++wrong[0].lkey;
        ASSERT_EQ(end.write_there(0, 0, 100, 1), 0);
        ASSERT_EQ(rdma(end.qp.get(), IBV_WR_RDMA_WRITE, wrong, end.peer.address, end.peer.rkey, 2), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_SUCCESS);
        EXPECT_EQ(end.sent().status, IBV_WC_LOC_PROT_ERR);
        end.together();
      },
      wait_for_the_other);
}

TEST(RemoteNode, NobodyThereEndsInRetryExceeded) {
  play(
      [](End& end) {
        end.introduce();
        end.connect_qp();
        ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, 100)}), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_RETRY_EXC_ERR);
        end.together();
      },
      [](End& end) {
        end.introduce();
        end.together();
      },
      {.timeout = 8, .retry_cnt = 1});
}

// The process there replies to each of them that it is not ready.
TEST(RemoteNode, SendsBeforeThePeerIsConnectedArriveInOrder) {
  play(
      [](End& end) {
        end.introduce();
        end.connect_qp();
        end.meet();
        end.together();
        for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(send(end.qp.get(), {end.memory.sge(i, 1)}, i), 0);
        EXPECT_TRUE(eventually([&] { return end.qp->shared->retries.load() >= 3; }));
        EXPECT_TRUE(nothing(end.send_cq.get()));
        end.together();
        for (const ibv_wc& wc : completions(end.send_cq.get(), 5)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        end.together();
      },
      [](End& end) {
        end.introduce();
        end.meet();
        end.together();
        end.together();
        end.connect_qp();
        for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(i, 1)}, i), 0);
        for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(end.received().wr_id, i);
        end.together();
      });
}

TEST(RemoteNode, AProcessThatEndsIsRetriedInVain) {
  play(
      [](End& end) {
        end.start();
        end.together();
        EXPECT_TRUE(eventually([&] { return end.is_alone(); }));
        ASSERT_EQ(end.write_there(0, 0, 100), 0);
        EXPECT_EQ(end.sent().status, IBV_WC_RETRY_EXC_ERR);
      },
      [](End& end) {
        end.start();
        end.together();
        _exit(0);
      },
      {.timeout = 12, .retry_cnt = 1});
}

// A new process at the same address has the same slot and a queue pair of the same number. What was for the
// old process does not reach the new one, neither requests under way nor requests posted later.
TEST(RemoteNode, ASuccessorIsSentNothingThatIsForAnother) {
  PlayedNode there;
  End& end = there.end;
  verbena::connect(end.qp.get(), PlayedNode::kQpn, End::address_of(false), {.timeout = 14, .retry_cnt = 7});
  there.meet();
  ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, 100)}), 0);
  ASSERT_EQ(PlayedNode::kind_of(there.hear()), wire::FrameKind::kRequest);
  there.hang_up();
  ASSERT_TRUE(eventually([&] { return end.is_alone(); }));
  ++end.peer.process.generation;
  there.meet();
  ASSERT_EQ(send(end.qp.get(), {end.memory.sge(0, 100)}), 0);
  ibv_wc wc{};
  for (const int64_t until = now_ns() + 20'000'000'000; poll_cq(end.send_cq.get(), 1, &wc) == 0;) {
    ASSERT_LT(now_ns(), until) << "it has not failed";
    const std::vector<std::byte> frame = there.hear(1);
    ASSERT_TRUE(frame.empty() || PlayedNode::kind_of(frame) != wire::FrameKind::kRequest);
  }
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
}

// And the queue pair takes nothing from a peer that it is not connected to: another number of that process,
// or the same number of an earlier process.
TEST(RemoteNode, ASuccessorTakesNothingThatIsForAnother) {
  PlayedNode there;
  End& end = there.end;
  verbena::connect(end.qp.get(), PlayedNode::kQpn, End::address_of(false), {});
  for (int i = 0; i < 2; ++i) ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(0, 100)}), 0);
  wire::RequestHead head{};
  head.kind = wire::FrameKind::kRequest;
  head.opcode = IBV_WR_SEND;
  head.connection = IBV_QPT_RC | IBV_MTU_1024 << 4;
  head.target_qpn = qp_number(end.qp.get());
  head.path_generation = 1;
  const auto answer_to = [&](uint32_t source) {
    head.source_qpn = source;
    there.say(head);
    return PlayedNode::head_of<wire::AnswerHead>(there.hear());
  };
  const auto refused = static_cast<uint64_t>(VendorError::peer_mismatch);
  there.meet();
  wire::AnswerHead answer = answer_to(PlayedNode::kQpn + 1);
  EXPECT_EQ(answer.kind, wire::FrameKind::kNotReady);
  EXPECT_EQ(answer.value, refused);
  EXPECT_EQ(answer_to(PlayedNode::kQpn).kind, wire::FrameKind::kAck);
  EXPECT_EQ(end.received().status, IBV_WC_SUCCESS);
  there.hang_up();
  ASSERT_TRUE(eventually([&] { return end.is_alone(); }));
  ++end.peer.process.generation;
  there.meet();
  head.psn = 1;  // as of the next message to this queue pair
  answer = answer_to(PlayedNode::kQpn);
  EXPECT_EQ(answer.kind, wire::FrameKind::kNotReady);
  EXPECT_EQ(answer.value, refused);
  EXPECT_TRUE(nothing(end.recv_cq.get()));
}

// As many atomics as a requester can have in flight, whose answers are lost with the connection: asked for
// again, they give the same values, and none is carried out twice.
TEST(RemoteNode, AtomicsThatAreAskedForAgainAreNotCarriedOutAgain) {
  constexpr uint64_t kMany = 255;
  PlayedNode there;
  End& end = there.end;
  end.connect_qp();
  wire::RequestHead head{};
  head.kind = wire::FrameKind::kRequest;
  head.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  head.connection = IBV_QPT_RC | IBV_MTU_1024 << 4;
  head.target_qpn = qp_number(end.qp.get());
  head.source_qpn = PlayedNode::kQpn;
  head.path_generation = 1;
  head.size = 8;
  head.remote_address = end.memory.address();
  head.rkey = end.memory.rkey();
  head.compare_add = 3;
  for (int connection = 0; connection < 2; ++connection) {
    there.meet();
    for (head.number = 0; head.number < kMany; ++head.number) {
      head.psn = static_cast<uint32_t>(head.number);
      there.say(head);
    }
    for (uint64_t number = 0; number < kMany; ++number) {
      const std::vector<std::byte> frame = there.hear();
      ASSERT_EQ(PlayedNode::kind_of(frame), wire::FrameKind::kAtomicAnswer) << number;
      EXPECT_EQ(PlayedNode::head_of<wire::AnswerHead>(frame).number, number);
      EXPECT_EQ(PlayedNode::head_of<wire::AnswerHead>(frame).value, 3 * number);
    }
    there.hang_up();
    ASSERT_TRUE(eventually([&] { return end.is_alone(); }));
  }
  uint64_t sum = 0;
  std::memcpy(&sum, end.memory.data(), sizeof sum);
  EXPECT_EQ(sum, 3 * kMany);
}

// It is not acknowledged, but it leaves from the program's memory.
TEST(RemoteNode, AnUnacknowledgedMessageCompletesWhenItHasLeft) {
  constexpr uint32_t kSize = 2 * 1024 * 1024;
  PlayedNode there;
  End& end = there.end;
  ibv_qp_init_attr init{};
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_UC;
  Qp* made = nullptr;
  ASSERT_EQ(create_qp(end.pd.get(), &init, end.send_cq.get(), end.recv_cq.get(), 0xc, &made), 0);
  const Owned<Qp> qp(made);
  EXPECT_EQ(to_init(made), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = PlayedNode::kQpn;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  std::memcpy(attr.ah_attr.grh.dgid.raw, End::address_of(false).raw.data(), 16);
  constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  ASSERT_EQ(modify_qp(made, &attr, kRtr), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  there.meet();
  end.memory.fill(1);
  ASSERT_EQ(send(made, {end.memory.sge(0, kSize)}), 0);
  ibv_wc wc{};
  size_t heard = 0;
  bool completed = false;
  while (heard < kSize) {
    if (!completed && poll_cq(end.send_cq.get(), 1, &wc) == 1) {
      completed = true;
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      end.memory.clear();  // what has not been sent yet would arrive like this
    }
    const std::vector<std::byte> frame = there.hear(completed ? 20000 : 1);
    ASSERT_FALSE(completed && frame.empty()) << "after " << heard << " bytes";
    for (size_t at = sizeof(wire::RequestHead); at < frame.size(); ++at, ++heard)
      ASSERT_EQ(frame[at], static_cast<std::byte>(1 + heard * 7 + (heard >> 8))) << heard;
  }
  EXPECT_TRUE(completed || end.sent().status == IBV_WC_SUCCESS);
}

// The connection breaks again and again, at any instant: nothing is lost, nothing is carried out twice.
TEST(RemoteNode, BrokenConnectionsLoseAndDoubleNothing) {
  constexpr size_t kMeetings = 20;
  constexpr uint64_t kPerMeeting = 40;
  constexpr uint64_t kMany = kMeetings * kPerMeeting;
  play(
      [](End& end) {
        end.start();
        uint64_t posted = 0, done = 0, meetings = 1, sum = 0;
        while (done < kMany) {
          for (; posted < kMany && posted - done < 30; ++posted) {
            if (posted % 2 == 0) {
              ASSERT_EQ(send(end.qp.get(), {end.memory.sge(65536, posted % 14 == 0 ? 50000 : 8)}, posted), 0);
              continue;
            }
            Sges sges{end.memory.sge(posted % 32 * 8, 8)};
            ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sges, posted);
            wr.wr.atomic = {end.peer.address, 1, 0, end.peer.rkey};
            ASSERT_EQ(post(end.qp.get(), wr), 0);
          }
          const ibv_wc wc = end.sent();
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << done;
          ASSERT_EQ(wc.wr_id, done);
          if (done % 2 == 1) {
            uint64_t before;
            std::memcpy(&before, end.memory.data() + done % 32 * 8, 8);
            ASSERT_EQ(before, sum++);
          }
          ++done;
          if (done % kPerMeeting == 0 && meetings < kMeetings) {
            end.break_off();
            end.meet();
            ++meetings;
          }
        }
        end.together();
      },
      [](End& end) {
        end.introduce();
        end.connect_qp();
        uint64_t posted = 0, received = 0, meetings = 1;
        for (; posted < 60; ++posted) ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(4096, 60000)}), 0);
        end.meet();
        end.together();
        for (const int64_t until = now_ns() + 40'000'000'000; received < kMany / 2 && now_ns() < until;) {
          ibv_wc wc{};
          if (poll_cq(end.recv_cq.get(), 1, &wc) == 1) {
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
            ASSERT_EQ(wc.byte_len, received * 2 % 14 == 0 ? 50000u : 8u);
            ++received;
            if (posted < kMany / 2) {
              ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(4096, 60000)}), 0);
              ++posted;
            }
          } else if (end.is_alone() && meetings < kMeetings) {
            end.meet();
            ++meetings;
          }
        }
        EXPECT_EQ(received, kMany / 2);
        end.together();
        uint64_t sum;
        std::memcpy(&sum, end.memory.data(), 8);
        EXPECT_EQ(sum, kMany / 2);
      },
      {}, kMeetings);
}

}  // namespace
}  // namespace verbena
