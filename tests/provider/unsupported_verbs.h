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
    {"create_flow_action_esp", [](const Objects& o) {
       ibv_flow_action_esp_attr attr = {};
       return error_of(ibv_create_flow_action_esp(o.context, &attr)); }},
    {"destroy_flow_action", [](const Objects& o) {
       auto action = fake_object<ibv_flow_action>(o);
       return ibv_destroy_flow_action(&action); }},
    {"modify_flow_action_esp", [](const Objects& o) {
       auto action = fake_object<ibv_flow_action>(o);
       ibv_flow_action_esp_attr attr = {};
       return ibv_modify_flow_action_esp(&action, &attr); }},
};
// clang-format on

}  // namespace verbena::test
