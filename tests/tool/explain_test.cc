// SPDX-License-Identifier: BSD-2-Clause
//
// verbena explain, and the table behind it.
#include <set>

#include "command_under_test.h"
#include "observe/diagnostic.h"

namespace verbena::test {
namespace {

class ExplainCommand : public CommandTest {};

TEST_F(ExplainCommand, TellsRuleSourceAndRemedyOfACode) {
  const Outcome outcome = verbena({"explain", "send_queue_full"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("send_queue_full: a call is refused (ENOMEM)\n")) << outcome.out;
  for (const char* part :
       {"\n  rule:   ", "\n  source: ibv_post_send(3)", "\n  to do:  signal at least one request"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
}

TEST_F(ExplainCommand, TakesAVendorErrInHexAndDecimal) {
  const Outcome hex = verbena({"explain", "0x93"});
  EXPECT_TRUE(hex.out.starts_with(
      "rkey_out_of_range: a work request completes with IBV_WC_REM_ACCESS_ERR, vendor_err 0x93\n"))
      << hex.out;
  EXPECT_EQ(verbena({"explain", "147"}).out, hex.out);
  EXPECT_EQ(verbena({"explain", "rkey_out_of_range"}).out, hex.out);
}

TEST_F(ExplainCommand, TellsAllReasonsOfAStatus) {
  const Outcome outcome = verbena({"explain", "IBV_WC_LOC_LEN_ERR"});
  for (const char* code : {"message_too_long: ", "atomic_not_8_bytes: ", "receive_too_small: "})
    EXPECT_NE(outcome.out.find(code), std::string::npos) << outcome.out;
  EXPECT_EQ(verbena({"explain", "LOC_LEN_ERR"}).out, outcome.out);
  EXPECT_EQ(verbena({"explain", "1"}).out, outcome.out);  // ib_send_bw: "Failed status 1"
}

TEST_F(ExplainCommand, TellsTheRulesOfCheck) {
  const Outcome outcome = verbena({"explain", "mr-range"});
  EXPECT_TRUE(
      outcome.out.starts_with("mr-range: verbena check reports (error): an SGE leaves its memory region\n"))
      << outcome.out << outcome.err;
  for (const char* part :
       {"\n  rule:   All bytes", "\n  source: ibv_reg_mr(3)", "\n  to do:  Compare", "\n  e.g.:   "})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  EXPECT_NE(verbena({"explain", "--list"}).out.find("\nmr-range "), std::string::npos);
}

TEST_F(ExplainCommand, ListsAllCodes) {
  const Outcome outcome = verbena({"explain", "--list"});
  for (const Diagnostic& diagnostic : all_diagnostics())
    EXPECT_NE(("\n" + outcome.out).find("\n" + std::string(diagnostic.code) + " "), std::string::npos)
        << diagnostic.code;
}

TEST_F(ExplainCommand, RefusesWhatItDoesNotKnow) {
  EXPECT_TRUE(verbena({"explain", "beauty"}).exited_with(1));
  EXPECT_TRUE(verbena({"explain", "0x9f"}).exited_with(1));
  EXPECT_TRUE(verbena({"explain"}).exited_with(2));
  EXPECT_TRUE(verbena({"explain", "none", "--list"}).exited_with(2));
}

TEST(Diagnostics, HaveDifferentCodesAndAllTheirWords) {
  std::set<std::string_view> codes;
  for (const Diagnostic& diagnostic : all_diagnostics()) {
    EXPECT_TRUE(codes.insert(diagnostic.code).second) << diagnostic.code;
    EXPECT_FALSE(diagnostic.rule.empty()) << diagnostic.code;
    EXPECT_FALSE(diagnostic.source.empty()) << diagnostic.code;
    EXPECT_FALSE(diagnostic.remedy.empty()) << diagnostic.code;
    EXPECT_EQ(find_diagnostic(diagnostic.code), &diagnostic);
  }
  EXPECT_EQ(find_diagnostic("beauty"), nullptr);
}

}  // namespace
}  // namespace verbena::test
