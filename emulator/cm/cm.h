// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager as its command interface (provider/rdma_cm) sees it: identifiers, what can be asked
// of them, and the events they raise. The rules are those of Linux' rdma_cm (drivers/infiniband/core/cma.c and
// cm.c); what a program sees of them is in rdma_cm(7) and the pages of librdmacm.
//
// Conventions:
//  * A function that returns int answers 0 or the errno of the refusal, and has then changed nothing.
//  * All functions may be called from any thread. An id may be used by several threads, except that nobody
//    else may use it while it is destroyed.
//  * Events are raised through the id's handler: in the service's own thread, or within the call that caused
//    them. Handlers of one id never run at the same time. A handler may call anything but destroy_id of an
//    id whose handler is running.
//  * No function throws. Who calls holds cancellation off (no_cancellation.h).
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <sys/socket.h>

#include <cstdint>
#include <string_view>

namespace verbena::cm {

class Service;
struct Id;

inline constexpr size_t kMaxPrivateData = 256;  // RDMA_MAX_PRIVATE_DATA

// As enum rdma_ucm_port_space (rdma/rdma_user_cm.h).
enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

// As enum rdma_cm_event_type (rdma/rdma_cma.h).
enum class EventType : uint32_t {
  kAddressResolved,
  kAddressError,
  kRouteResolved,
  kRouteError,
  kConnectRequest,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kDeviceRemoval,
  kMulticastJoin,
  kMulticastError,
  kAddressChange,
  kTimewaitExit,
};

struct PrivateData {
  uint8_t bytes[kMaxPrivateData];
  uint8_t length;
};

struct Ece {
  uint32_t vendor_id;
  uint32_t attr_mod;
};

struct ConnectionParameters {
  uint32_t qp_number;
  uint32_t qkey;  // UDP and IPOIB; 0: the port space's own
  PrivateData private_data;
  bool srq;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
};

struct DatagramParameters {
  uint32_t qp_number;
  uint32_t qkey;
  ibv_ah_attr address;
  PrivateData private_data;
};

struct Event {
  EventType type;
  // 0; < 0: a negative errno; > 0: kRejected's reason (enum ib_cm_rej_reason), a SIDR_REP's status with
  // kUnreachable, as Linux reports them.
  int status;
  Id* id;        // kConnectRequest: the new id
  Id* listener;  // kConnectRequest: where it arrived; else nullptr
  // The one that belongs to the port space: connected or datagram. Zero where an event has none.
  bool is_datagram;
  ConnectionParameters connection;
  DatagramParameters datagram;
  Ece ece;
  void* join;  // kMulticastJoin, kMulticastError: join_multicast's context
};

// Answers false when there is no room for a new connection (kConnectRequest only; a full backlog): the service then
// destroys the id and forgets the request. As on Linux (ucma_event_handler, cm_destroy_id with -ENOMEM) the peer is
// told nothing and asks again after its timeout, so that a moment's crowd costs time, not connections. Whoever wants
// to say no calls reject().
using EventHandler = bool (*)(void* context, const Event& event);

// ---- the service: one per process ---------------------------------------------------------------------

// From the first acquire() to the last release() the process has a place on the node that VERBENA_NODE names,
// and a thread that carries messages and timers. ENODEV: no node; EPROTO, EMFILE, ENOMEM, EAGAIN as
// open_context (emulator.h).
int acquire_service(Service** out);
void release_service(Service* service);

// True in a forked child: the ids are the parent's, and nothing here may be called but this.
bool service_is_dead(const Service* service);

// Calls `gone(context)` once, in the service's thread, when nobody has the other end of pipe `write_end` open
// any more. unwatch_pipe: on return it does not run and will not (not to be called from `gone`).
int watch_pipe(Service* service, int write_end, void (*gone)(void*), void* context);
void unwatch_pipe(Service* service, int write_end);

// ---- identifiers ---------------------------------------------------------------------------------------

// EINVAL: a port space that is none; ENOMEM. `type`: IBV_QPT_RC, UD, UC, XRC_SEND, XRC_RECV.
int create_id(Service* service, PortSpace space, ibv_qp_type type, EventHandler handler, void* context, Id** out);

// Ends everything the id is about: peers are told (DREQ or REJ), port and groups are free again. On return its
// handler does not run, and will not. Connection requests that arrived at a listener and were given to its
// handler are the handler's, and stay.
void destroy_id(Id* id);

// A new id (of kConnectRequest) gets its own handler's context; an id may be moved to another one any time.
void set_context(Id* id, void* context);
void* context_of(const Id* id);

// Addresses are sockaddr_in, sockaddr_in6 or sockaddr_ib (rdma/ib.h in Linux; librdmacm's infiniband/ib.h).
// Port 0: one is chosen. EADDRNOTAVAIL, EADDRINUSE, EAFNOSUPPORT, EINVAL (not in this state), EACCES never.
int bind_address(Id* id, const sockaddr* address);

// `source`: nullptr, or where to bind if the id is not bound. -> kAddressResolved or kAddressError.
int resolve_address(Id* id, const sockaddr* source, const sockaddr* destination, uint32_t timeout_ms);
int resolve_route(Id* id, uint32_t timeout_ms);  // -> kRouteResolved or kRouteError

int listen(Id* id, int backlog);
int connect(Id* id, const ConnectionParameters& parameters, const Ece& ece);

// Of a request (parameters given), or, by an active side that brings its QP up itself, of a response (nullptr).
int accept(Id* id, const ConnectionParameters* parameters, const Ece& ece);
int reject(Id* id, const PrivateData& data, uint8_t reason);  // reason: enum ib_cm_rej_reason, 0: consumer
int disconnect(Id* id);
int notify(Id* id, ibv_event_type event);  // IBV_EVENT_COMM_EST

// `attr->qp_state`: INIT, RTR or RTS. What ibv_modify_qp needs to go there (rdma_init_qp_attr in Linux).
int init_qp_attributes(Id* id, ibv_qp_attr* attr, int* mask);

// `send_only`: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER. -> kMulticastJoin or kMulticastError, with `join`.
int join_multicast(Id* id, const sockaddr* group, bool send_only, void* join);
int leave_multicast(Id* id, const sockaddr* group);

int set_service_type(Id* id, uint8_t tos);
int set_reuse_address(Id* id, bool reuse);  // EINVAL: bound already
int set_family_only(Id* id, bool only);     // EINVAL: listening already
int set_ack_timeout(Id* id, uint8_t timeout);
int set_path(Id* id, const ib_path_rec_data* paths, size_t count);  // RDMA_OPTION_IB_PATH -> kRouteResolved

// What is known of the id, in one piece (rdma_user_cm.h: the QUERY commands).
struct Route {
  sockaddr_storage source, destination;  // family 0: none
  bool has_device;
  char device_name[64];  // zero-terminated
  uint64_t node_guid;    // network byte order, as in ibv_device's guid
  uint32_t device_index;
  uint8_t port;
  uint16_t pkey;  // 0xffff
  union ibv_gid source_gid, destination_gid;
  uint32_t path_count;  // 0 to 2
  ib_user_path_rec paths[2];
};
void query(Id* id, Route* out);

// For people (VERBENA_LOG, `verbena status`).
std::string_view name_of(EventType type);

}  // namespace verbena::cm
