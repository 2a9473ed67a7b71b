// SPDX-License-Identifier: BSD-2-Clause
//
// VERBENA_LOG=warn: a refusal is one line on stderr, which names the verb, the object or the value that was
// given, and the rule (docs/ERRORS.md). What libibverbs refuses by itself never reaches the device, and is
// not logged: the busy channel, GIDs and P_Keys that sysfs does not have, bits that its own header does not
// know, the verbs that are not offered at all.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "pair.h"

namespace verbena::test {
namespace {

// What is written to stderr during `call`.
std::string said_during(const std::function<void()>& call) {
  const int file = memfd_create("stderr", MFD_CLOEXEC);
  const int before = dup(STDERR_FILENO);
  EXPECT_GE(dup2(file, STDERR_FILENO), 0);
  call();
  EXPECT_GE(dup2(before, STDERR_FILENO), 0);
  close(before);
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), 0);
  EXPECT_EQ(pread(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  close(file);
  return text;
}

struct RefusedCall {
  std::vector<std::string> words;  // in its line: the verb, the value, the rule
  std::function<bool()> refused;
};

class RefusalLineTest : public PairTest {
 protected:
  // The level is read once, when the library is loaded, so the table is run in a process that begins with it.
  // True: this is that process.
  static bool begins_with_the_log() {
    if (const char* level = getenv("VERBENA_LOG"); level != nullptr && std::string(level) == "warn")
      return true;
    const std::string filter = "--gtest_filter=RefusalLineTest." +
                               std::string(testing::UnitTest::GetInstance()->current_test_info()->name());
    const pid_t child = fork();
    if (child == 0) {
      setenv("VERBENA_LOG", "warn", 1);
      execl("/proc/self/exe", "refusals", filter.c_str(), nullptr);
      _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "status " << status << "; its own words are above";
    return false;
  }
};

TEST_F(RefusalLineTest, NamesVerbValueAndRule) {
  if (!begins_with_the_log()) return;
  Context other = open_device();
  Cq cq_of_other(ibv_create_cq(other.get(), 16, nullptr, nullptr, 0));
  Channel channel(ibv_create_comp_channel(context_.get()));
  Qp fresh = make_qp();
  Mr mr(ibv_reg_mr(pd_.get(), local_.data(), 64, 0));
  ibv_port_attr port;
  ibv_wc wc;
  ibv_sge sge = local_.sge(0, 8);
  const auto create = [&](const std::function<void(ibv_qp_init_attr&)>& change) {
    ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
    change(init);
    return ibv_create_qp(pd_.get(), &init) == nullptr;
  };
  const auto modify = [&](int mask, const std::function<void(ibv_qp_attr&)>& change) {
    ibv_qp_attr attr = init_attr();
    change(attr);
    return ibv_modify_qp(fresh.get(), &attr, mask) != 0;
  };
  const auto create_ex = [&](const std::function<void(ibv_cq_init_attr_ex&)>& change) {
    ibv_cq_init_attr_ex init = {};
    init.cqe = 4;
    change(init);
    return ibv_create_cq_ex(context_.get(), &init) == nullptr;
  };
  const auto create_qp_ex = [&](const std::function<void(ibv_qp_init_attr_ex&)>& change) {
    ibv_qp_init_attr_ex init = {};
    init.send_cq = init.recv_cq = cq_.get();
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    init.pd = pd_.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    change(init);
    return ibv_create_qp_ex(context_.get(), &init) == nullptr;
  };
  const auto address = [&](const std::function<void(ibv_ah_attr&)>& change) {
    ibv_ah_attr attr = rtr_attr(0).ah_attr;
    change(attr);
    return ibv_create_ah(pd_.get(), &attr) == nullptr;
  };
  ibv_send_wr send = request(IBV_WR_SEND, &sge);
  ibv_send_wr* bad = nullptr;
  ibv_recv_wr receive = {.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad_receive = nullptr;
  const std::vector<RefusedCall> refusals = {
      {{"ibv_query_port", "port 2"}, [&] { return ibv_query_port(context_.get(), 2, &port) != 0; }},
      {{"ibv_create_cq", "0 entries", "must be 1 to"},
       [&] { return ibv_create_cq(context_.get(), 0, nullptr, nullptr, 0) == nullptr; }},
      {{"ibv_create_cq", "vector 99"},
       [&] { return ibv_create_cq(context_.get(), 1, nullptr, nullptr, 99) == nullptr; }},
      {{"ibv_create_cq", "descriptor " + std::to_string(channel->fd), "another context"},
       [&] { return ibv_create_cq(other.get(), 1, nullptr, channel.get(), 0) == nullptr; }},
      {{"ibv_create_cq_ex", "comp_mask 0x40000000"},
       [&] { return create_ex([](auto& init) { init.comp_mask = 1u << 30; }); }},
      {{"ibv_create_cq_ex", "flags 0x80"},
       [&] {
         return create_ex([](auto& init) {
           init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
           init.flags = 0x80;
         });
       }},
      {{"ibv_create_cq_ex", "parent_domain", "no parent domain"},
       [&] {
         return create_ex([&](auto& init) {
           init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
           init.parent_domain = pd_.get();
         });
       }},
      {{"ibv_modify_cq", "attr_mask 0x80"},
       [&] {
         ibv_modify_cq_attr attr = {.attr_mask = 0x80, .moderate = {}};
         return ibv_modify_cq(cq_.get(), &attr) != 0;
       }},
      {{"ibv_resize_cq", "0 entries"}, [&] { return ibv_resize_cq(cq_.get(), 0) != 0; }},
      {{"ibv_poll_cq", "num_entries -1", "negative"}, [&] { return ibv_poll_cq(cq_.get(), -1, &wc) < 0; }},
      {{"ibv_destroy_cq", "CQ " + std::to_string(responder_cq_->handle), "2 send and receive queues"},
       [&] { return ibv_destroy_cq(responder_cq_.get()) == EBUSY; }},
      {{"ibv_dealloc_pd", "PD " + std::to_string(pd_->handle), "3 memory regions (lkey 0x",
        "3 queue pairs (0x"},
       [&] { return ibv_dealloc_pd(pd_.get()) == EBUSY; }},
      {{"ibv_dealloc_pd", "1 memory window (rkey 0x", "1 SRQ (", "1 address handle", "1 parent domain"},
       [&] {
         ibv_pd* const busy = ibv_alloc_pd(context_.get());
         ibv_mw* const mw = ibv_alloc_mw(busy, IBV_MW_TYPE_1);
         ibv_srq_init_attr of_srq = {};
         of_srq.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
         ibv_srq* const srq = ibv_create_srq(busy, &of_srq);
         ibv_ah_attr of_ah = rtr_attr(0).ah_attr;
         ibv_ah* const ah = ibv_create_ah(busy, &of_ah);
         ibv_parent_domain_init_attr of_parent = {};
         of_parent.pd = busy;
         ibv_pd* const parent = ibv_alloc_parent_domain(context_.get(), &of_parent);
         const int answer = ibv_dealloc_pd(busy);
         const bool freed = ibv_dealloc_pd(parent) == 0 && ibv_destroy_ah(ah) == 0 &&
                            ibv_destroy_srq(srq) == 0 && ibv_dealloc_mw(mw) == 0 && ibv_dealloc_pd(busy) == 0;
         return answer == EBUSY && freed;
       }},
      {{"ibv_reg_mr", "length 10", "access 0x2", "IBV_ACCESS_LOCAL_WRITE"},
       [&] { return ibv_reg_mr(pd_.get(), local_.data(), 10, IBV_ACCESS_REMOTE_WRITE) == nullptr; }},
      {{"ibv_reg_mr", "address 0x1000", "not mapped"},
       [&] { return ibv_reg_mr(pd_.get(), reinterpret_cast<void*>(4096), 10, 1) == nullptr; }},
      {{"ibv_reg_mr_iova", "length 10", "different places of a page"},
       [&] { return ibv_reg_mr_iova(pd_.get(), local_.data(), 10, local_.address(1), 1) == nullptr; }},
      {{"ibv_alloc_mw", "type 9"},
       [&] { return ibv_alloc_mw(pd_.get(), static_cast<ibv_mw_type>(9)) == nullptr; }},
      {{"ibv_alloc_dm", "length 0"},
       [&] {
         ibv_alloc_dm_attr attr = {};
         return ibv_alloc_dm(context_.get(), &attr) == nullptr;
       }},
      {{"ibv_advise_mr", "flags 0x100000", "IBV_ADVISE_MR_FLAG_FLUSH"},
       [&] { return ibv_advise_mr(pd_.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 1u << 20, &sge, 1) != 0; }},
      {{"ibv_advise_mr", "advice 9"},
       [&] { return ibv_advise_mr(pd_.get(), static_cast<ibv_advise_mr_advice>(9), 0, &sge, 1) != 0; }},
      {{"ibv_create_qp", "max_send_wr 10000000"},
       [&] { return create([](auto& init) { init.cap.max_send_wr = 10'000'000; }); }},
      {{"ibv_create_qp", "type 77"},
       [&] { return create([](auto& init) { init.qp_type = static_cast<ibv_qp_type>(77); }); }},
      {{"ibv_create_qp", "type 255"},
       [&] { return create([](auto& init) { init.qp_type = IBV_QPT_DRIVER; }); }},
      {{"ibv_create_qp", "another context"},
       [&] { return create([&](auto& init) { init.recv_cq = cq_of_other.get(); }); }},
      {{"ibv_create_qp", "send_cq is null"},
       [&] { return create([](auto& init) { init.send_cq = nullptr; }); }},
      {{"ibv_create_qp_ex", "comp_mask 0x"},
       [&] { return create_qp_ex([](auto& init) { init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER; }); }},
      {{"ibv_create_qp_ex", "create_flags 0x"},
       [&] {
         return create_qp_ex([](auto& init) {
           init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
           init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
         });
       }},
      {{"ibv_modify_qp", "from RESET (0) to RTS (3)"},
       [&] { return modify(IBV_QP_STATE, [](auto& a) { a.qp_state = IBV_QPS_RTS; }); }},
      {{"ibv_modify_qp", "(55)"},
       [&] { return modify(IBV_QP_STATE, [](auto& a) { a.qp_state = static_cast<ibv_qp_state>(55); }); }},
      {{"ibv_modify_qp", "RESET to INIT", "IBV_QP_PORT is missing"},
       [&] { return modify(kInitMask & ~IBV_QP_PORT, [](auto&) {}); }},
      {{"ibv_modify_qp", "port_num", "it is 7"},
       [&] { return modify(kInitMask, [](auto& a) { a.port_num = 7; }); }},
      {{"ibv_modify_qp", "pkey_index", "it is 300"},
       [&] { return modify(kInitMask, [](auto& a) { a.pkey_index = 300; }); }},
      {{"ibv_modify_qp", "attr_mask 0x40000001"},
       [&] { return modify(IBV_QP_STATE | 1 << 30, [](auto&) {}); }},
      {{"ibv_query_qp", "attr_mask 0x40000000"},
       [&] {
         ibv_qp_attr attr;
         ibv_qp_init_attr init;
         return ibv_query_qp(fresh.get(), &attr, 1 << 30, &init) != 0;
       }},
      {{"ibv_post_send", "is in RESET"}, [&] { return ibv_post_send(fresh.get(), &send, &bad) != 0; }},
      {{"ibv_post_recv", "is in RESET"},
       [&] { return ibv_post_recv(fresh.get(), &receive, &bad_receive) != 0; }},
      {{"ibv_create_ah", "port_num", "it is 9"}, [&] { return address([](auto& a) { a.port_num = 9; }); }},
      {{"ibv_create_ah", "sl is above 15", "it is 99"}, [&] { return address([](auto& a) { a.sl = 99; }); }},
      {{"ibv_attach_mcast", "not a multicast GID"},
       [&] { return ibv_attach_mcast(fresh.get(), &gid_, 0) != 0; }},
      {{"ibv_create_srq", "max_wr 1073741824"},
       [&] {
         ibv_srq_init_attr init = {nullptr, {.max_wr = 1u << 30, .max_sge = 1, .srq_limit = 0}};
         return ibv_create_srq(pd_.get(), &init) == nullptr;
       }},
      {{"ibv_import_pd", "handle 9999"}, [&] { return ibv_import_pd(context_.get(), 9999) == nullptr; }},
  };
  for (const RefusedCall& refusal : refusals) {
    bool refused = false;
    const std::string said = said_during([&] { refused = refusal.refused(); });
    EXPECT_TRUE(refused) << refusal.words[0] << ", " << refusal.words[1];
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1)
        << refusal.words[0] << ", " << refusal.words[1] << ":\n"
        << said;
    // observe/diagnostics.def has the code's row: the macro does not compile otherwise.
    EXPECT_TRUE(std::regex_search(said, std::regex(R"( \[[a-z0-9_]+\]\n$)"))) << said;
    for (const std::string& word : refusal.words)
      EXPECT_NE(said.find(word), std::string::npos) << "'" << word << "' is not in: " << said;
  }
}

}  // namespace
}  // namespace verbena::test
