// SPDX-License-Identifier: BSD-2-Clause
//
// A program of librdmacm that takes commands on stdin, one a line. It answers each with "ok ..." or "error
// ...", and reports events as they come: "event NAME STATUS ID [NEW ID]". Ids are numbered in the order of
// their creation.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kPatience = 10'000;  // milliseconds, for addresses and routes

rdma_event_channel* channel;
bool deaf;
std::vector<rdma_cm_id*> ids;

sockaddr_in at(const char* host, unsigned port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}
sockaddr* plain(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

size_t number_of(const rdma_cm_id* id) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == id) return i;
  return 9999;
}

// Of an id without a queue pair.
rdma_conn_param parameters() {
  rdma_conn_param p{};
  p.qp_num = 0x1234;
  p.responder_resources = p.initiator_depth = 1;
  p.retry_count = p.rnr_retry_count = 7;
  return p;
}

using Command = int (*)(rdma_cm_id* id, const std::string& argument);

int bind(rdma_cm_id* id, const std::string& port) {
  sockaddr_in local = at("127.0.0.1", static_cast<unsigned>(std::stoul(port)));
  return rdma_bind_addr(id, plain(&local));
}
int resolve(rdma_cm_id* id, const std::string& port) {
  sockaddr_in there = at("127.0.0.1", static_cast<unsigned>(std::stoul(port)));
  return rdma_resolve_addr(id, nullptr, plain(&there), kPatience);
}
int route(rdma_cm_id* id, const std::string&) { return rdma_resolve_route(id, kPatience); }
int listen(rdma_cm_id* id, const std::string&) { return rdma_listen(id, 10); }
int connect(rdma_cm_id* id, const std::string&) {
  rdma_conn_param p = parameters();
  return rdma_connect(id, &p);
}
int accept(rdma_cm_id* id, const std::string&) {
  rdma_conn_param p = parameters();
  return rdma_accept(id, &p);
}
int establish(rdma_cm_id* id, const std::string&) { return rdma_establish(id); }
int disconnect(rdma_cm_id* id, const std::string&) { return rdma_disconnect(id); }
int qp(rdma_cm_id* id, const std::string&) {
  ibv_qp_init_attr attributes{};
  attributes.cap = {
      .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  return rdma_create_qp(id, nullptr, &attributes);
}
int destroy(rdma_cm_id* id, const std::string&) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  std::replace(ids.begin(), ids.end(), id, static_cast<rdma_cm_id*>(nullptr));
  return rdma_destroy_id(id);
}
int join(rdma_cm_id* id, const std::string& group) {
  sockaddr_in there = at(group.c_str(), 0);
  return rdma_join_multicast(id, plain(&there), nullptr);
}

const std::map<std::string, Command> kCommands = {
    {"bind", bind},     {"resolve", resolve},     {"route", route},
    {"listen", listen}, {"connect", connect},     {"accept", accept},
    {"join", join},     {"establish", establish}, {"disconnect", disconnect},
    {"qp", qp},         {"destroy", destroy},
};

void tell_error() { std::cout << "error " << std::strerror(errno) << std::endl; }

void obey(const std::string& line) {
  std::istringstream words(line);
  std::string command, argument;
  size_t number = 0;
  words >> command;
  if (command == "id") {
    words >> argument;
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel, &id, nullptr, argument == "udp" ? RDMA_PS_UDP : RDMA_PS_TCP) != 0)
      return tell_error();
    ids.push_back(id);
    std::cout << "ok " << ids.size() - 1 << std::endl;
    return;
  }
  if (command == "deaf" || command == "hear") {
    deaf = command == "deaf";
    std::cout << "ok" << std::endl;
    return;
  }
  words >> number >> argument;
  const auto found = kCommands.find(command);
  if (found == kCommands.end() || number >= ids.size() || ids[number] == nullptr) {
    std::cout << "error no such command or id: " << line << std::endl;
    return;
  }
  if (found->second(ids[number], argument) != 0) return tell_error();
  std::cout << "ok " << (ids[number] == nullptr ? 0 : ntohs(rdma_get_src_port(ids[number]))) << std::endl;
}

void tell_event() {
  rdma_cm_event* event;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno != EAGAIN)
      tell_error();  // librdmacm keeps some to itself: a rejection after a failure of its own
    return;
  }
  const bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
  if (request) ids.push_back(event->id);
  std::cout << "event " << rdma_event_str(event->event) + std::strlen("RDMA_CM_EVENT_") << " "
            << event->status << " " << number_of(request ? event->listen_id : event->id);
  if (request) std::cout << " " << ids.size() - 1;
  std::cout << std::endl;
  rdma_ack_cm_event(event);
}

}  // namespace

int main() {
  channel = rdma_create_event_channel();
  if (channel == nullptr || fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0) return 1;
  std::cout << "ok" << std::endl;
  std::string pending;
  for (;;) {
    pollfd watched[2] = {{STDIN_FILENO, POLLIN, 0}, {deaf ? -1 : channel->fd, POLLIN, 0}};
    if (poll(watched, 2, -1) < 0) continue;
    if (watched[1].revents != 0) tell_event();
    if (watched[0].revents == 0) continue;
    char more[256];
    const ssize_t got = read(STDIN_FILENO, more, sizeof more);
    if (got <= 0) return 0;
    pending.append(more, static_cast<size_t>(got));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1))
      obey(pending.substr(0, end));
  }
}
