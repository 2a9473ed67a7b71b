// SPDX-License-Identifier: BSD-2-Clause
//
// One queue pair and a record of its operations at both ends: they are numbered, so that what is lost,
// doubled or out of order is seen. Operation i is a SEND, a WRITE with immediate data, a FETCH_ADD, a
// COMPARE_SWAP or a READ, in turn; each carries, or brings back, the number of those before it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace verbena::network {

enum class Kind : uint32_t { kSend, kWrite, kAdd, kSwap, kRead, kCount };
inline constexpr uint64_t kKinds = static_cast<uint64_t>(Kind::kCount);

// What each end tells the other before and after, over the meeting place (main.cc).
struct Address {
  ibv_gid gid;
  uint64_t memory;
  uint32_t rkey, qpn, psn, mtu;
};

struct Account {
  uint64_t posted, completed;  // operations of an initiator; completed with success
};

struct Timing {
  uint8_t timeout = 18;     // local ACK timeout: 4.096 us * 2^timeout
  uint8_t retry_count = 7;  // and RNR retries without end
};

struct Devices {
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  int gid_index;
};

class Line {
 public:
  // The number of the line is the upper half of its work requests' wr_id.
  Line(const Devices& devices, uint32_t number, bool initiator);
  Address address() const;
  void connect(const Address& peer, const Timing& timing);

  // The initiator posts until its window is full or `end` operations are posted. False: the line has failed.
  bool post(uint64_t end);
  // Takes a completion of this line.
  void complete(const ibv_wc& wc);

  bool is_initiator() const { return initiator_; }
  bool failed() const { return status_ != IBV_WC_SUCCESS; }
  ibv_wc_status status() const { return status_; }  // the first that was not success
  const Account& account() const { return account_; }
  // At a target: does everything that arrived agree with the initiator's own record? `known`: the initiator
  // could still send it.
  void compare(const Account& initiator, bool known);
  // The error, as text; empty: none.
  const std::string& fault() const { return fault_; }
  uint64_t received() const { return received_; }
  uint64_t added() const { return counters()[0]; }
  uint64_t swapped() const { return counters()[1]; }

 private:
  volatile uint64_t* counters() const { return reinterpret_cast<uint64_t*>(memory_.data()); }
  uint8_t* slot(uint64_t number) const;
  void post_receive(uint64_t number);
  void post_operation(uint64_t number);
  void check_answer(uint64_t number);
  void check_arrival(uint64_t number, const uint8_t* bytes, size_t size);
  void complain(const std::string& sentence);

  bool initiator_;
  uint32_t number_;
  mutable std::vector<uint8_t> memory_;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Devices devices_;
  Address peer_ = {};
  Account account_ = {};
  uint64_t received_ = 0, receives_ = 0;
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  std::string fault_;
};

}  // namespace verbena::network
