// SPDX-License-Identifier: BSD-2-Clause
#include "tool/words.h"

#include <infiniband/verbs.h>

#include "adapter/layout.h"

namespace verbena::tool {
namespace {

struct Word {
  uint32_t number;
  const char* text;
};

constexpr Word kQpTypes[] = {{IBV_QPT_RC, "RC"},
                             {IBV_QPT_UC, "UC"},
                             {IBV_QPT_UD, "UD"},
                             {IBV_QPT_RAW_PACKET, "RAW_PACKET"},
                             {IBV_QPT_XRC_SEND, "XRC_SEND"},
                             {IBV_QPT_XRC_RECV, "XRC_RECV"}};

constexpr Word kQpStates[] = {{IBV_QPS_RESET, "RESET"}, {IBV_QPS_INIT, "INIT"}, {IBV_QPS_RTR, "RTR"},
                              {IBV_QPS_RTS, "RTS"},     {IBV_QPS_SQD, "SQD"},   {IBV_QPS_SQE, "SQE"},
                              {IBV_QPS_ERR, "ERR"}};

constexpr Word kArmed[] = {{static_cast<uint32_t>(Armed::kNo), "no"},
                           {static_cast<uint32_t>(Armed::kSolicited), "solicited"},
                           {static_cast<uint32_t>(Armed::kNext), "next"},
                           {static_cast<uint32_t>(Armed::kRaising), "raising"}};

constexpr Word kAccess[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                            {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                            {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                            {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
                            {IBV_ACCESS_MW_BIND, "MW_BIND"},
                            {IBV_ACCESS_ZERO_BASED, "ZERO_BASED"},
                            {IBV_ACCESS_ON_DEMAND, "ON_DEMAND"},
                            {IBV_ACCESS_HUGETLB, "HUGETLB"},
                            {IBV_ACCESS_RELAXED_ORDERING, "RELAXED_ORDERING"}};

template <size_t N>
std::string find(const Word (&table)[N], uint32_t number) {
  for (const Word& word : table)
    if (word.number == number) return word.text;
  return std::to_string(number);
}

}  // namespace

std::string qp_type_word(uint32_t type) { return find(kQpTypes, type); }
std::string qp_state_word(uint32_t state) { return find(kQpStates, state); }
std::string armed_word(uint32_t armed) { return find(kArmed, armed); }

std::vector<std::string> access_words(uint32_t access) {
  std::vector<std::string> words;
  for (const Word& word : kAccess) {
    if ((access & word.number) != 0) words.push_back(word.text);
    access &= ~word.number;
  }
  if (access != 0) words.push_back(std::to_string(access));
  return words;
}

}  // namespace verbena::tool
