// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_wr_*(3): work requests that the program builds step by step between ibv_wr_start and ibv_wr_complete.
//
// They are built in an arena of the QP, in the form of ibv_post_send(3), and posted together: all of them, or
// none if one is refused ("the entire posting will be aborted"). The builders return nothing. ibv_wr_complete
// returns the first error. From start to complete or abort the arena belongs to one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena::verbs {

struct VerbsPd;
struct WrArena;

// An arena for the work requests of `cap`, in memory of `pd`. It has no lock if `pd` has a thread domain: the
// program promises that one thread at a time uses the QP (ibv_alloc_td(3)). nullptr: no memory.
WrArena* make_wr_arena(const ibv_qp_cap& cap, VerbsPd* pd);
void free_wr_arena(WrArena* arena);  // nullptr is allowed

// Do QPs of `type` support every operation of `send_ops_flags`? 0, or EOPNOTSUPP as on mlx5 and rxe, which is
// logged.
int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags);

// Fills in the functions of `qp`: the requested operations and no others ("select which QP send ops will be
// defined", ibv_create_qp_ex(3)), and the setters of its type.
void define_send_ops(ibv_qp_ex* qp, ibv_qp_type type, uint64_t send_ops_flags);

// The work requests built since start, as a list. nullptr: none, or a mistake was made.
ibv_send_wr* open_batch(ibv_qp_ex* qp);

}  // namespace verbena::verbs
