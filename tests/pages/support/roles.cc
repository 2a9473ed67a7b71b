// SPDX-License-Identifier: BSD-2-Clause
//
// What the second process does. Each role says the port it listens at (0: none) in one line of its output.
#include <cstdio>
#include <cstdlib>

#include "connected_test.h"
#include "peer.h"

namespace verbena::pages {
namespace {

constexpr size_t kSize = 4096;

struct Side {
  CmId listener, id;
};

void say(uint16_t port) {
  printf("%u\n", port);
  fflush(stdout);
}

// Takes one request; `prepare` runs before it is accepted.
template <typename Prepare>
int serve(const std::string& host, Side& side, rdma_conn_param* parameters, Prepare prepare) {
  const Info here = address_info(host, 0, RAI_PASSIVE, RDMA_PS_TCP);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, here.get(), nullptr, &attributes) != 0) return -1;
  side.listener.reset(id);
  if (rdma_listen(id, 1) != 0) return -1;
  say(ntohs(rdma_get_src_port(id)));
  if (rdma_get_request(side.listener.get(), &id) != 0) return -1;
  side.id.reset(id);
  prepare(id);
  return rdma_accept(id, parameters);
}

// Sends back the first message; ends when the other side has the answer.
int echo(const std::string& host, uint16_t) {
  Side side;
  Memory memory;
  if (serve(host, side, nullptr, [&](rdma_cm_id* id) {
        memory = Memory(id, kSize);
        rdma_post_recv(id, nullptr, memory.data(), kSize, memory.mr());
      }) != 0)
    return 1;
  ibv_wc wc = {};
  if (rdma_get_recv_comp(side.id.get(), &wc) != 1 || wc.status != IBV_WC_SUCCESS) return 3;
  if (rdma_post_send(side.id.get(), nullptr, memory.data(), wc.byte_len, memory.mr(), 0) != 0) return 4;
  if (rdma_get_send_comp(side.id.get(), &wc) != 1 || wc.status != IBV_WC_SUCCESS) return 5;
  return rdma_disconnect(side.id.get()) == 0 ? 0 : 6;
}

// Offers memory to read and to write, its address and key in the private data of the answer, and is passive
// from then on; ends when the other side disconnects.
int memory(const std::string& host, uint16_t) {
  Side side;
  Memory offered;
  struct {
    uint64_t address;
    uint32_t rkey;
  } where = {};
  rdma_conn_param parameters = {};
  parameters.responder_resources = RDMA_MAX_RESP_RES;
  parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
  parameters.private_data = &where;
  parameters.private_data_len = sizeof(where);
  if (serve(host, side, &parameters, [&](rdma_cm_id* id) {
        offered = Memory(id, kSize, [](rdma_cm_id* of, void* address, size_t length) {
          return ibv_reg_mr(of->pd, address, length,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
        });
        offered.fill(5);
        where = {offered.address(), offered.mr()->rkey};
      }) != 0)
    return 1;
  rdma_ack_cm_event(side.id->event);
  side.id->event = nullptr;
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(side.id->channel, &event) != 0) return 3;
  const bool is_end = event->event == RDMA_CM_EVENT_DISCONNECTED;
  rdma_ack_cm_event(event);
  return is_end ? 0 : 4;
}

// Calls, says "hello", ends when that has arrived.
int hello(const std::string& host, uint16_t port) {
  const Info there = address_info(host, port, 0, RDMA_PS_TCP);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* id = nullptr;
  say(0);
  if (rdma_create_ep(&id, there.get(), nullptr, &attributes) != 0) return 1;
  const CmId owned(id);
  if (rdma_connect(id, nullptr) != 0) return 3;
  char word[] = "hello";
  if (rdma_post_send(id, nullptr, word, sizeof(word), nullptr, IBV_SEND_INLINE) != 0) return 4;
  ibv_wc wc = {};
  if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS) return 5;
  return 0;
}

struct Role {
  const char* name;
  int (*play)(const std::string& host, uint16_t port);
};
constexpr Role kRoles[] = {{"echo", echo}, {"memory", memory}, {"hello", hello}};

}  // namespace

int play_role(int count, char** arguments) {
  if (count == 3)
    for (const Role& role : kRoles)
      if (strcmp(role.name, arguments[0]) == 0)
        return role.play(arguments[1], static_cast<uint16_t>(atoi(arguments[2])));
  return 2;
}

}  // namespace verbena::pages
