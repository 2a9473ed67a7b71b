// SPDX-License-Identifier: BSD-2-Clause
//
// Makes ends and carries out requests for them (messages.h): in the test's own process, in the server's, or
// in a helper process.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "support/ends.h"
#include "support/link.h"

namespace conformance {

// Closes itself.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

 private:
  int descriptor_;
};

// A hosted end: an End with what only some of them have.
struct HostedEnd {
  explicit HostedEnd(size_t buffer) : end(buffer) {}
  ~HostedEnd() {
    if (srq) end.qp = Qp();  // before its SRQ, which goes before `end`
  }

  std::shared_ptr<HostedEnd> lender;  // whose PD, buffer and region it uses, or null
  Channel channel;                    // before the CQs: they are destroyed first
  End end;                            // of XRC: qp is the sending half
  Xrcd xrcd;
  Srq srq;
  Qp receiver;  // XRC: the receiving half
  Pd other_pd;  // only for regions that its QP must not reach
  std::map<uint32_t, Mr> regions;
  std::vector<Mw> windows;
  std::vector<Descriptor> memberships;  // of IP groups; one ends when its socket is closed
  uint32_t next_region = 1;
  uint32_t remote_srqn = 0;  // XRC: where requests go
  ibv_ah_attr address = {};  // of the end that it is connected with
  wire::EndFacts facts;

  bool uses_lenders_cqs = false;

  const End& cqs() const { return uses_lenders_cqs ? lender->end : end; }
  const End& memory() const { return lender ? lender->end : end; }
  ibv_qp* receiving() const { return receiver ? receiver.get() : end.qp.get(); }
};

// Handles kinds other than the data path's, from 100 on. One object for each host; thread-safe.
class Service {
 public:
  virtual ~Service() = default;
  // Throws what wire::from_bytes and the creation of objects throw.
  virtual std::string answer(uint16_t kind, const std::string& request) = 0;
};
// Kinds from `first` to `last` are handled by the object that `make` creates, on the device of the host.
void register_service(uint16_t first, uint16_t last, std::function<std::unique_ptr<Service>(Device&)> make);

class Host {
 public:
  explicit Host(Device& device);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Never throws. Requests about different ends may come from different threads.
  std::pair<Outcome, std::string> answer(wire::Kind kind, const std::string& request);

  // The objects of an end of this process. Throws Malformed for a number that no end has.
  HostedEnd& at(uint32_t end);

 private:
  struct Handler;
  static const Handler handlers[];

  wire::HelloAnswer hello(const wire::Hello&);
  wire::EndFacts make(const wire::MakeEnd&);
  wire::Result connect(const wire::Connect&);
  wire::Result modify(const wire::Modify&);
  wire::State query(const wire::OfEnd&);
  wire::Result send(const wire::Send&);
  wire::Result receive(const wire::Receive&);
  wire::Completions poll(const wire::Poll&);
  wire::Nothing write(const wire::Bytes&);
  wire::Bytes read(const wire::Bytes&);
  wire::Nothing fill(const wire::Pattern&);
  wire::Mismatch check(const wire::Pattern&);
  wire::Region register_region(const wire::RegisterRegion&);
  wire::Result deregister_region(const wire::OfRegion&);
  wire::Window bind_window(const wire::BindWindow&);
  wire::Result destroy(const wire::Destroy&);
  wire::Event async_event(const wire::AwaitEvent&);
  wire::Result arm(const wire::Arm&);
  wire::Event cq_event(const wire::AwaitEvent&);
  wire::HammerAnswer hammer(const wire::Hammer&);
  wire::Result multicast(const wire::Multicast&);

  std::shared_ptr<HostedEnd> pointer_to(uint32_t end);
  // The capabilities of its sending half.
  ibv_qp_cap make_xrc(HostedEnd& hosted, const wire::MakeEnd& spec, ibv_srq_attr& made_queue);
  std::optional<wire::Event> take_event(const HostedEnd& hosted);
  Service& service_for(uint16_t kind);

  Device& device_;
  std::mutex mutex_;  // of the maps and the events; never held during a verb of an end
  std::map<uint32_t, std::shared_ptr<HostedEnd>> ends_;
  uint32_t next_ = 1;
  std::deque<ibv_async_event> events_;
  std::map<uint16_t, std::unique_ptr<Service>> services_;  // by the first of their kinds
};

}  // namespace conformance
