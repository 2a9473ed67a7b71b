// SPDX-License-Identifier: BSD-2-Clause
//
// Every verb that the provider does not offer, called as a program calls it. Each entry returns the errno
// value that the program sees; all must be EOPNOTSUPP. Empty objects take the place of those that cannot be
// created.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>

namespace verbena::test {

struct Objects {
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_qp* qp;
  ibv_mr* mr;
};

struct UnsupportedVerb {
  const char* name;
  int (*call)(const Objects&);
};

inline int error_of(const void* object) { return object == nullptr ? errno : 0; }

// An object that was never created, but knows its context.
template <typename Object>
Object fake_object(const Objects& objects) {
  Object object = {};
  object.context = objects.context;
  return object;
}

// clang-format off
inline const UnsupportedVerb kUnsupportedVerbs[] = {
    {"attach_counters_point_flow", [](const Objects& o) {
       auto counters = fake_object<ibv_counters>(o);
       ibv_counter_attach_attr attr = {};
       return ibv_attach_counters_point_flow(&counters, &attr, nullptr); }},
    {"create_counters", [](const Objects& o) {
       ibv_counters_init_attr attr = {};
       return error_of(ibv_create_counters(o.context, &attr)); }},
    {"create_flow", [](const Objects& o) {
       ibv_flow_attr attr = {};
       return error_of(ibv_create_flow(o.qp, &attr)); }},
    {"create_flow_action_esp", [](const Objects& o) {
       ibv_flow_action_esp_attr attr = {};
       return error_of(ibv_create_flow_action_esp(o.context, &attr)); }},
    {"create_rwq_ind_table", [](const Objects& o) {
       ibv_rwq_ind_table_init_attr attr = {};
       return error_of(ibv_create_rwq_ind_table(o.context, &attr)); }},
    {"create_wq", [](const Objects& o) {
       ibv_wq_init_attr attr = {};
       attr.pd = o.pd;
       attr.cq = o.cq;
       return error_of(ibv_create_wq(o.context, &attr)); }},
    {"destroy_counters", [](const Objects& o) {
       auto counters = fake_object<ibv_counters>(o);
       return ibv_destroy_counters(&counters); }},
    {"destroy_flow", [](const Objects& o) {
       auto flow = fake_object<ibv_flow>(o);
       return ibv_destroy_flow(&flow); }},
    {"destroy_flow_action", [](const Objects& o) {
       auto action = fake_object<ibv_flow_action>(o);
       return ibv_destroy_flow_action(&action); }},
    {"destroy_rwq_ind_table", [](const Objects& o) {
       auto table = fake_object<ibv_rwq_ind_table>(o);
       return ibv_destroy_rwq_ind_table(&table); }},
    {"destroy_wq", [](const Objects& o) {
       auto wq = fake_object<ibv_wq>(o);
       return ibv_destroy_wq(&wq); }},
    {"modify_flow_action_esp", [](const Objects& o) {
       auto action = fake_object<ibv_flow_action>(o);
       ibv_flow_action_esp_attr attr = {};
       return ibv_modify_flow_action_esp(&action, &attr); }},
    {"modify_wq", [](const Objects& o) {
       auto wq = fake_object<ibv_wq>(o);
       ibv_wq_attr attr = {};
       return ibv_modify_wq(&wq, &attr); }},
    {"post_srq_ops", [](const Objects& o) {
       auto srq = fake_object<ibv_srq>(o);
       ibv_ops_wr wr = {};
       ibv_ops_wr* bad = nullptr;
       return ibv_post_srq_ops(&srq, &wr, &bad); }},
    {"read_counters", [](const Objects& o) {
       auto counters = fake_object<ibv_counters>(o);
       uint64_t value = 0;
       return ibv_read_counters(&counters, &value, 1, 0); }},
};
// clang-format on

}  // namespace verbena::test
