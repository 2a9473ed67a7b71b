// SPDX-License-Identifier: BSD-2-Clause
//
// The transport of an RC or UC queue pair whose peer is reached by RoCE v2 packets: Verbena on another node,
// the kernel's rxe, an adapter. It joins the machines of engine/packets with the requester (requester.h) and
// the responder. Sending again, timeouts and RNR waits are the requester machine's, so the requester itself
// sees a transport that never loses anything.
//
// Requests are sent by the thread that posts them. What comes is handled by the thread that receives
// (roce_progress.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "engine/objects/transport.h"
#include "engine/packets/requester_machine.h"
#include "engine/packets/responder_machine.h"
#include "engine/roce_transport/packet_responder.h"
#include "engine/rules/vendor_error.h"
#include "udp/ip_fields.h"
#include "wire/net_address.h"

namespace verbena {

class PacketSender;
class PacketTrain;
class RocePath;

// What a path asks of the module. The caller holds send_lock of the queue pair.
class RocePathOwner {
 public:
  // Something is in flight: on_timer() must be called until it returns kEndOfTime.
  virtual void watch(const std::shared_ptr<RocePath>& path) = 0;
  // A watched path wants on_timer() then, ns. A thread that polls sees to it; the service thread may come
  // later.
  virtual void note_timer(int64_t at) = 0;
  // The lock of the receiving thread, if no thread has it.
  virtual std::unique_lock<std::timed_mutex> try_receiving() = 0;

 protected:
  ~RocePathOwner() = default;
};

struct RocePeer {
  wire::NetAddress address;
  uint32_t qpn = 0;
};

class RocePath final : public Transport,
                       public std::enable_shared_from_this<RocePath>,
                       private packets::RequesterHost {
 public:
  // On the way to RTR, with the attributes of that transition. Throws std::bad_alloc.
  RocePath(Qp& qp, const ibv_qp_attr& attr, const RocePeer& peer, PacketSender& sender, RocePathOwner& owner);

  // ---- Transport ----
  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override;
  bool is_synchronous() const override { return false; }
  uint32_t chunk_size() const override { return UINT32_MAX; }
  // The machine counts times and retries.
  uint64_t patience_ns(const Qp&) const override { return UINT64_MAX; }

  // ---- the receiving thread, under its lock ----

  const RocePeer& peer() const { return peer_; }
  const wire::NetAddress& own_address() const;
  // A packet from the peer's address for this queue pair: a response or a CNP, or a request. Answers to
  // requests are sent by send_answers(), requests that may go now by send_requests(), which returns when
  // on_timer() is to be called.
  void take_response(const roce::Packet& packet, int64_t now);
  int64_t send_requests(int64_t now);
  // True: a NAK is due now, and should not wait.
  bool take_request(const roce::Packet& packet);
  // A packet was marked on the way (ECN). The peer is told by a CNP, which is an answer as well.
  void take_mark(int64_t now);
  // Sends at most `most` of the answers that are due. False: some are left. `may_refuse(peer)`: may a NAK for
  // a packet out of order be sent now?
  bool send_answers(int most, const std::function<bool(const wire::NetAddress&)>& may_refuse);
  bool is_answer_due() const;
  // If nothing is due but an acknowledgement: it goes with the next request, or by send_answers().
  bool let_wait();
  bool awaits_answers = false, awaits_requests = false;  // on the receiver's lists

  // Sends again what is due. Returns when to call again, ns; kEndOfTime: nothing is in flight. The path is
  // then not watched any more.
  int64_t on_timer(int64_t now);

 private:
  // packets::RequesterHost
  bool gather(uint64_t number, uint32_t offset, std::span<uint8_t> to) override;
  bool scatter(uint64_t number, uint32_t offset, std::span<const uint8_t> from) override;
  bool atomic_result(uint64_t number, uint64_t before) override;
  void completed(uint64_t number) override { completed_below_ = number + 1; }
  void failed(uint64_t number, packets::Failure failure) override;
  void got_rnr_nak() override;
  void retried() override;

  bool is_in_use() const;
  void begin();
  bool may_hold(const SendRequest& request);
  // `receives`: the caller is the receiving thread.
  void send_packets(int64_t now, bool receives);
  void send_trains(PacketTrain& train, int64_t now, bool receives);
  void fill_and_send(PacketTrain& train, int64_t now, bool receives);
  // The network is full: what was taken out since then was not sent.
  struct Before {
    packets::RequesterMachine::Position position;
    uint64_t completed_below;
  };
  Before before_packet() const { return {requester_.position(), completed_below_}; }
  void take_back(const Before& before, int64_t now);
  void add_acknowledgement(PacketTrain& train, bool receives);
  void report();
  int64_t next_timer(int64_t now) const;
  SendRequest& request(uint64_t number) const;
  VendorError move(uint64_t number, uint32_t offset, std::span<const iovec> here, bool to_program);
  bool gather_ahead(uint64_t number, uint32_t offset, std::span<uint8_t> to);

  Qp& qp_;
  const RocePeer peer_;
  PacketSender& sender_;
  const uint32_t socket_;  // PacketSender::choose_socket()
  RocePathOwner& owner_;

  const uint32_t mtu_;
  // Of requests and acknowledgements; of responses to READs and CNPs, whose rate nothing lowers.
  const udp::IpFields fields_, unlimited_;

  // ---- under Qp::send_lock ----
  packets::RequesterMachine requester_;
  bool begun_ = false;              // the PSN of the first request is known
  bool is_watched_ = false;         // RocePathOwner::watch()
  bool is_full_ = false;            // the network took nothing
  int64_t held_until_ = INT64_MAX;  // requests wait for others to go with them
  // What gather_ahead() has copied: the bytes [begin, end) of a request.
  PacketTrain* train_ = nullptr;  // that is being filled
  int64_t filled_at_ = 0;         // the time that it is filled for
  struct {
    uint64_t number = 0;
    uint32_t begin = 0, end = 0;
    const uint8_t* at = nullptr;
  } ahead_;
  bool is_reporting_ = false;
  uint64_t completed_below_ = 0;  // requests below are done, as far as the machine is concerned
  // The request that has failed, once those before it are done.
  bool has_failed_ = false;
  uint64_t failed_number_ = 0;
  VendorError error_{};
  VendorError local_error_{};  // why gather(), scatter() or atomic_result() refused

  // ---- the receiving thread ----
  PacketResponder host_;
  packets::ResponderMachine responder_;
  std::atomic<bool> is_waiting_{false};  // let_wait(); a hint for other threads
};

}  // namespace verbena
