// SPDX-License-Identifier: BSD-2-Clause
//
// Every verb that the provider does not offer, called as a program calls it. Each entry answers the errno
// value that the program sees; all must be EOPNOTSUPP. Objects that cannot be created are stood in for by
// empty ones.
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
Object stand_in(const Objects& objects) {
  Object object = {};
  object.context = objects.context;
  return object;
}

// clang-format off
inline const UnsupportedVerb kUnsupportedVerbs[] = {
    {"advise_mr", [](const Objects& o) {
       ibv_sge sge = {};
       return ibv_advise_mr(o.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1); }},
    {"alloc_dm", [](const Objects& o) {
       ibv_alloc_dm_attr attr = {};
       return error_of(ibv_alloc_dm(o.context, &attr)); }},
    {"alloc_mw", [](const Objects& o) { return error_of(ibv_alloc_mw(o.pd, IBV_MW_TYPE_1)); }},
    {"alloc_null_mr", [](const Objects& o) { return error_of(ibv_alloc_null_mr(o.pd)); }},
    {"alloc_parent_domain", [](const Objects& o) {
       ibv_parent_domain_init_attr attr = {};
       attr.pd = o.pd;
       return error_of(ibv_alloc_parent_domain(o.context, &attr)); }},
    {"alloc_td", [](const Objects& o) {
       ibv_td_init_attr attr = {};
       return error_of(ibv_alloc_td(o.context, &attr)); }},
    {"attach_counters_point_flow", [](const Objects& o) {
       auto counters = stand_in<ibv_counters>(o);
       ibv_counter_attach_attr attr = {};
       return ibv_attach_counters_point_flow(&counters, &attr, nullptr); }},
    {"bind_mw", [](const Objects& o) {
       auto mw = stand_in<ibv_mw>(o);
       mw.type = IBV_MW_TYPE_1;
       ibv_mw_bind bind = {};
       return ibv_bind_mw(o.qp, &mw, &bind); }},
    {"close_xrcd", [](const Objects& o) {
       auto xrcd = stand_in<ibv_xrcd>(o);
       return ibv_close_xrcd(&xrcd); }},
    {"create_counters", [](const Objects& o) {
       ibv_counters_init_attr attr = {};
       return error_of(ibv_create_counters(o.context, &attr)); }},
    {"create_cq_ex", [](const Objects& o) {
       ibv_cq_init_attr_ex attr = {};
       attr.cqe = 1;
       return error_of(ibv_create_cq_ex(o.context, &attr)); }},
    {"create_flow", [](const Objects& o) {
       ibv_flow_attr attr = {};
       return error_of(ibv_create_flow(o.qp, &attr)); }},
    {"create_flow_action_esp", [](const Objects& o) {
       ibv_flow_action_esp_attr attr = {};
       return error_of(ibv_create_flow_action_esp(o.context, &attr)); }},
    {"create_qp_ex with SEND_OPS_FLAGS", [](const Objects& o) {
       ibv_qp_init_attr_ex attr = {};
       attr.send_cq = attr.recv_cq = o.cq;
       attr.qp_type = IBV_QPT_RC;
       attr.pd = o.pd;
       attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
       return error_of(ibv_create_qp_ex(o.context, &attr)); }},
    {"create_rwq_ind_table", [](const Objects& o) {
       ibv_rwq_ind_table_init_attr attr = {};
       return error_of(ibv_create_rwq_ind_table(o.context, &attr)); }},
    {"create_srq_ex", [](const Objects& o) {
       ibv_srq_init_attr_ex attr = {};
       attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
       attr.srq_type = IBV_SRQT_XRC;
       return error_of(ibv_create_srq_ex(o.context, &attr)); }},
    {"create_wq", [](const Objects& o) {
       ibv_wq_init_attr attr = {};
       attr.pd = o.pd;
       attr.cq = o.cq;
       return error_of(ibv_create_wq(o.context, &attr)); }},
    {"dealloc_mw", [](const Objects& o) {
       auto mw = stand_in<ibv_mw>(o);
       return ibv_dealloc_mw(&mw); }},
    {"dealloc_td", [](const Objects& o) {
       auto td = stand_in<ibv_td>(o);
       return ibv_dealloc_td(&td); }},
    {"destroy_counters", [](const Objects& o) {
       auto counters = stand_in<ibv_counters>(o);
       return ibv_destroy_counters(&counters); }},
    {"destroy_flow", [](const Objects& o) {
       auto flow = stand_in<ibv_flow>(o);
       return ibv_destroy_flow(&flow); }},
    {"destroy_flow_action", [](const Objects& o) {
       auto action = stand_in<ibv_flow_action>(o);
       return ibv_destroy_flow_action(&action); }},
    {"destroy_rwq_ind_table", [](const Objects& o) {
       auto table = stand_in<ibv_rwq_ind_table>(o);
       return ibv_destroy_rwq_ind_table(&table); }},
    {"destroy_wq", [](const Objects& o) {
       auto wq = stand_in<ibv_wq>(o);
       return ibv_destroy_wq(&wq); }},
    {"free_dm", [](const Objects& o) {
       auto dm = stand_in<ibv_dm>(o);
       return ibv_free_dm(&dm); }},
    {"import_dm", [](const Objects& o) { return error_of(ibv_import_dm(o.context, 1)); }},
    {"import_mr", [](const Objects& o) { return error_of(ibv_import_mr(o.pd, 1)); }},
    {"import_pd", [](const Objects& o) { return error_of(ibv_import_pd(o.context, 1)); }},
    {"modify_cq", [](const Objects& o) {
       ibv_modify_cq_attr attr = {};
       return ibv_modify_cq(o.cq, &attr); }},
    {"modify_flow_action_esp", [](const Objects& o) {
       auto action = stand_in<ibv_flow_action>(o);
       ibv_flow_action_esp_attr attr = {};
       return ibv_modify_flow_action_esp(&action, &attr); }},
    {"modify_qp_rate_limit", [](const Objects& o) {
       ibv_qp_rate_limit_attr attr = {};
       return ibv_modify_qp_rate_limit(o.qp, &attr); }},
    {"modify_wq", [](const Objects& o) {
       auto wq = stand_in<ibv_wq>(o);
       ibv_wq_attr attr = {};
       return ibv_modify_wq(&wq, &attr); }},
    {"open_qp", [](const Objects& o) {
       ibv_qp_open_attr attr = {};
       return error_of(ibv_open_qp(o.context, &attr)); }},
    {"open_xrcd", [](const Objects& o) {
       ibv_xrcd_init_attr attr = {};
       attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
       attr.fd = -1;
       return error_of(ibv_open_xrcd(o.context, &attr)); }},
    {"post_srq_ops", [](const Objects& o) {
       auto srq = stand_in<ibv_srq>(o);
       ibv_ops_wr wr = {};
       ibv_ops_wr* bad = nullptr;
       return ibv_post_srq_ops(&srq, &wr, &bad); }},
    {"query_ece", [](const Objects& o) {
       ibv_ece ece = {};
       return ibv_query_ece(o.qp, &ece); }},
    {"query_rt_values", [](const Objects& o) {
       ibv_values_ex values = {};
       return ibv_query_rt_values_ex(o.context, &values); }},
    {"read_counters", [](const Objects& o) {
       auto counters = stand_in<ibv_counters>(o);
       uint64_t value = 0;
       return ibv_read_counters(&counters, &value, 1, 0); }},
    {"reg_dm_mr", [](const Objects& o) {
       auto dm = stand_in<ibv_dm>(o);
       return error_of(ibv_reg_dm_mr(o.pd, &dm, 0, 8, IBV_ACCESS_ZERO_BASED)); }},
    {"reg_dmabuf_mr", [](const Objects& o) { return error_of(ibv_reg_dmabuf_mr(o.pd, 0, 4096, 0, -1, 0)); }},
    {"rereg_mr", [](const Objects& o) {
       return ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) != 0 ? errno : 0; }},
    {"resize_cq", [](const Objects& o) { return ibv_resize_cq(o.cq, 100); }},
    {"set_ece", [](const Objects& o) {
       ibv_ece ece = {};
       ece.vendor_id = 1;
       return ibv_set_ece(o.qp, &ece); }},
};
// clang-format on

}  // namespace verbena::test
