// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager as its command interface (provider/rdma_cm) sees it: identifiers, their operations,
// and the events that they raise. The rules are those of Linux' rdma_cm (drivers/infiniband/core/cma.c and
// cm.c). Programs see them in rdma_cm(7) and in the manual pages of librdmacm.
//
// Conventions:
// - A function that returns int returns 0 or the errno of the refusal; a refused call has changed nothing.
// - All functions may be called from any thread. Several threads may use an id. Exception: no other thread
//   may use it while it is destroyed.
// - Events are raised through the id's handler, in the service's own thread or within the call that caused
//   them. Handlers of one id never run at the same time. A handler may call any function except destroy_id()
//   of an id whose handler is running.
// - No function throws. The caller disables cancellation (no_cancellation.h).
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
  // 0. < 0: a negative errno. > 0: the reason of kRejected (enum ib_cm_rej_reason), or with kUnreachable the
  //    status of a SIDR_REP, as Linux reports them.
  int status;
  Id* id;        // kConnectRequest: the new id
  Id* listener;  // kConnectRequest: where it arrived; else nullptr
  // True: `datagram` is valid. False: `connection` is. Which one depends on the port space. All zero if the
  // event has no parameters.
  bool is_datagram;
  ConnectionParameters connection;
  DatagramParameters datagram;
  Ece ece;
  void* join;  // kMulticastJoin, kMulticastError: the context of join_multicast()
};

// Returns false if there is no space for a new connection (kConnectRequest only; a full backlog). The service
// then destroys the id and drops the request. As on Linux (ucma_event_handler, cm_destroy_id with -ENOMEM),
// the peer gets no reply and repeats the request after its timeout: a short burst of requests costs time, not
// connections. To refuse a request, call reject().
using EventHandler = bool (*)(void* context, const Event& event);

// ---- the service: one per process ---------------------------------------------------------------------

// From the first acquire_service() to the last release_service() the process has a slot on the node that
// VERBENA_NODE names, and a thread for messages and timers. ENODEV: no node; EPROTO, EMFILE, ENOMEM, EAGAIN
// as open_context() (emulator.h).
int acquire_service(Service** out);
void release_service(Service* service);

// True in a forked child: the ids belong to the parent, and only this function may be called.
bool service_is_dead(const Service* service);

// Calls `gone(context)` once, in the service's thread, when no process has the reading end of the pipe of
// `write_end` open any more. unwatch_pipe(): after return the callback does not run (not to be called from
// `gone`).
int watch_pipe(Service* service, int write_end, void (*gone)(void*), void* context);
void unwatch_pipe(Service* service, int write_end);

// Calls `due(context)` once, in the service's thread, `milliseconds` from now or later. One call is kept: a
// further one takes its place. `context` lives as long as the service.
void call_later(Service* service, uint32_t milliseconds, void (*due)(void*), void* context);

// ---- identifiers ---------------------------------------------------------------------------------------

// EINVAL: no such port space; ENOMEM. `type`: IBV_QPT_RC, UD, UC, XRC_SEND, XRC_RECV.
int create_id(Service* service, PortSpace space, ibv_qp_type type, EventHandler handler, void* context, Id** out);

// Ends all uses of the id: peers are notified (DREQ or REJ), port and groups are released. After return its
// handler does not run. Connection requests that arrived at a listener and were given to its handler belong
// to the handler, and stay.
void destroy_id(Id* id);

// A new id (of kConnectRequest) has the context of its listener's handler. Any id may get another context at
// any time.
void set_context(Id* id, void* context);
void* context_of(const Id* id);

// Addresses are sockaddr_in, sockaddr_in6 or sockaddr_ib (rdma/ib.h in Linux; librdmacm's infiniband/ib.h).
// Port 0: a free port is chosen. EADDRNOTAVAIL, EADDRINUSE, EAFNOSUPPORT, EINVAL (not in this state); never
// EACCES.
int bind_address(Id* id, const sockaddr* address);

// `source`: nullptr, or the address to bind to if the id is not bound. -> kAddressResolved or kAddressError.
int resolve_address(Id* id, const sockaddr* source, const sockaddr* destination, uint32_t timeout_ms);
int resolve_route(Id* id, uint32_t timeout_ms);  // -> kRouteResolved or kRouteError

int listen(Id* id, int backlog);
int connect(Id* id, const ConnectionParameters& parameters, const Ece& ece);

// Accepts a request (with parameters). With nullptr: confirms a response, on an active side that changes its
// QP's state itself.
int accept(Id* id, const ConnectionParameters* parameters, const Ece& ece);
int reject(Id* id, const PrivateData& data, uint8_t reason);  // reason: enum ib_cm_rej_reason, 0: consumer
int disconnect(Id* id);
int notify(Id* id, ibv_event_type event);  // IBV_EVENT_COMM_EST

// `attr->qp_state`: INIT, RTR or RTS. Returns the attributes that ibv_modify_qp needs for it
// (rdma_init_qp_attr in Linux).
int init_qp_attributes(Id* id, ibv_qp_attr* attr, int* mask);

// `send_only`: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER. -> kMulticastJoin or kMulticastError, with `join`.
int join_multicast(Id* id, const sockaddr* group, bool send_only, void* join);
int leave_multicast(Id* id, const sockaddr* group);

int set_service_type(Id* id, uint8_t tos);
int set_reuse_address(Id* id, bool reuse);  // EINVAL: bound already
int set_family_only(Id* id, bool only);     // EINVAL: listening already
int set_ack_timeout(Id* id, uint8_t timeout);
int set_path(Id* id, const ib_path_rec_data* paths, size_t count);  // RDMA_OPTION_IB_PATH -> kRouteResolved

// A consistent copy of the id's state (rdma_user_cm.h: the QUERY commands).
struct Route {
  sockaddr_storage source, destination;  // family 0: none
  bool has_device;
  char device_name[64];  // zero-terminated
  uint64_t node_guid;    // network byte order, as in ibv_device's guid
  uint8_t port;
  uint16_t pkey;  // 0xffff
  union ibv_gid source_gid, destination_gid;
  uint32_t path_count;  // 0 to 2
  ib_user_path_rec paths[2];
};
void query(Id* id, Route* out);

// For messages (VERBENA_LOG, `verbena status`).
std::string_view name_of(EventType type);

}  // namespace verbena::cm
