// SPDX-License-Identifier: BSD-2-Clause
//
// Two ends of the rdma_cm. The near one is the test's own: identifiers, events and QPs. The far one is
// wherever far ends are (support/pair.h): everything that goes to it and comes from it is plain data, a
// request of cm_messages.h each.
#pragma once

#include <optional>

#include "support/cm_messages.h"
#include "support/cm_objects.h"
#include "support/ends.h"
#include "support/pair.h"

namespace conformance {

struct RemoteMemory {
  uint64_t address;
  uint32_t rkey;
  size_t size;
};

// One identifier that listens, and one that is the far end of the test: from a request, a resolution or a
// binding. Calls that return an int return 0 or the errno value; failures at the far end are thrown here.
class CmFar {
 public:
  // In this process it has the near end's address; elsewhere one of its own, of the same family.
  CmFar(Topology& topology, const SocketAddress& near);

  // The passive side. listen: returns its address. reserve: an address where no process listens as long as
  // this exists.
  SocketAddress listen(rdma_port_space space = RDMA_PS_TCP) { return listen_at({}, space); }
  SocketAddress listen_at(const SocketAddress& address, rdma_port_space space = RDMA_PS_TCP);
  SocketAddress reserve(rdma_port_space space = RDMA_PS_TCP);
  EventFacts take_request();  // its identifier becomes the far end
  int accept(const ConnectionSpec& spec = {});
  int reject(const std::vector<uint8_t>& data = {});
  // Does all of it by itself, while the test waits in a call: takes a request, makes a QP, posts a receive of
  // 1,024 bytes, accepts, waits for the established event. served: returns the request; throws the failure,
  // if any.
  void serve(const ConnectionSpec& spec = {});
  EventFacts served();

  // The active side. Address and route; the QP is make_qp's.
  void resolve(const SocketAddress& to, rdma_port_space space = RDMA_PS_TCP);
  // Only bound, for multicast.
  void bind(rdma_port_space space = RDMA_PS_UDP);
  int connect(const ConnectionSpec& spec = {});
  // Multicast. send_to_group: 8 bytes of its memory, to the group joined last.
  EventFacts join(const SocketAddress& group);
  void leave(const SocketAddress& group);
  int send_to_group();

  // Either.
  void make_qp();
  int disconnect();
  int set_ece(const ibv_ece& ece);
  ibv_ece remote_ece();
  EventFacts event();
  EventFacts event(rdma_cm_event_type expected);
  testing::AssertionResult stays_quiet();
  uint32_t qp_number();
  ibv_qp_attr queue();  // state and timers
  SocketAddress local();
  void destroy();  // the far end; a listener stays

  // Data. The memory exists from make_qp on, and the peer may read and write it.
  RemoteMemory memory();
  void fill(size_t offset, const std::vector<uint8_t>& bytes);
  std::vector<uint8_t> bytes(size_t offset, size_t length);
  int post_receive(size_t offset, size_t length, uint64_t id = 1);
  // SEND, or a READ or WRITE of the near end's memory.
  int post(ibv_wr_opcode opcode, size_t offset, size_t length, const RemoteMemory& near = {});
  ibv_wc sent() { return completion(false); }
  ibv_wc received() { return completion(true); }

 private:
  template <typename Answer, typename Request = wire::Nothing>
  Answer ask(wire::CmKind kind, const Request& request = {}) {
    return link_.call<Answer>(static_cast<wire::Kind>(kind), request);
  }
  ibv_wc completion(bool receives);

  Link& link_;
  const bool is_loopback_;
};

// Ids of the near end, on a channel of its own.
class CmTest : public DeviceTest {
 protected:
  // Of the near end: all IP addresses of the port; the best. Throws NotTested where it has none.
  const std::vector<SocketAddress>& addresses();
  SocketAddress address() { return addresses().front(); }
  rdma_event_channel* channel();
  CmFar& far();

  CmId make_id(rdma_port_space space = RDMA_PS_TCP) { return conformance::make_id(channel(), space); }
  CmId make_bound(rdma_port_space space = RDMA_PS_TCP);
  CmId make_listener(rdma_port_space space = RDMA_PS_TCP);

  // near_ is active: routed to the far end, with a QP, connecting. Returns the far end's request.
  EventFacts ask(const ConnectionSpec& spec = {}, rdma_port_space space = RDMA_PS_TCP,
                 Where where = Where::current());
  void prepare(rdma_port_space space = RDMA_PS_TCP, Where where = Where::current());  // all but connecting
  int connect(const ConnectionSpec& spec = {});                                       // 0 or errno
  // near_ is passive: returns the far end's request. The event must go before near_ does.
  CmEvent be_asked(const ConnectionSpec& spec = {}, rdma_port_space space = RDMA_PS_TCP,
                   Where where = Where::current());
  int accept(const ConnectionSpec& spec = {});

  // A connection, near_ active; returns the near end's event.
  EventFacts establish(const ConnectionSpec& near = {}, const ConnectionSpec& far = {},
                       Where where = Where::current());

  // near_ looks up the far end's datagram service; returns the established event.
  EventFacts look_up(const ConnectionSpec& answer = {}, Where where = Where::current());
  Ah address_handle(const EventFacts& found, Where where = Where::current());

  // On iWARP only: near_ sends the far end a message, which is received. The first one of a connection has to
  // be the active side's (rdma_connect(3), IWARP SPECIFIC). And where the near end's WRITE has completed, its
  // bytes are sure to be there when a message behind it has come (RFC 5040, 5.5): nothing acknowledges a
  // WRITE.
  void message_on_iwarp();

  // InfiniBand's messages carry more than those of iWARP's MPA: QP number, SRQ, retry counts, and depths,
  // which MPA has by RFC 6581 only.
  static bool is_infiniband(const rdma_cm_id* id);
  void only_infiniband();  // throws NotClaimed on iWARP
  // The largest value that the device claims, at most `wanted`.
  uint8_t responder_resources(uint8_t wanted);
  uint8_t initiator_depth(uint8_t wanted);

 private:
  void start_over();
  // A call of the far end: on another device its failure tells nothing of the near one.
  void far_must(int error, const char* what, Where where);

  std::vector<SocketAddress> addresses_;
  EventChannel channel_;  // outlives the ids
  std::optional<Topology> topology_;
  std::optional<CmFar> far_;

 protected:
  CmId listener_, near_;
  QpSpec near_qp_;        // that ask and establish make
  ibv_qp_cap made_ = {};  // what it is told to have
};

}  // namespace conformance
