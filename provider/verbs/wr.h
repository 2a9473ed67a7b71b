// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_wr_*(3): work requests that the program builds piece by piece between ibv_wr_start and ibv_wr_complete.
//
// They are built in an arena of the QP as what ibv_post_send(3) takes, and posted together: all of them, or,
// if one is not to be taken, none ("the entire posting will be aborted"). The builders tell nothing; the
// first mistake is remembered and is what ibv_wr_complete answers. From start to complete or abort the arena
// belongs to one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena::verbs {

struct VerbsPd;
struct WrArena;

// Room for `cap`'s work requests, of the memory of `pd`. Nothing is locked where `pd` has a thread domain:
// the program promises that one thread at a time uses the QP (ibv_alloc_td(3)). nullptr: no memory.
WrArena* make_wr_arena(const ibv_qp_cap& cap, VerbsPd* pd);
void free_wr_arena(WrArena* arena);  // nullptr is allowed

// Can every operation of `send_ops_flags` be built for QPs of `type`? 0; or EOPNOTSUPP (mlx5, rxe), told in
// the log.
int check_send_ops(ibv_qp_type type, uint64_t send_ops_flags);

// Fills in the functions of `qp`: the operations asked for and no others ("select which QP send ops will be
// defined", ibv_create_qp_ex(3)), and the setters of its type.
void define_send_ops(ibv_qp_ex* qp, ibv_qp_type type, uint64_t send_ops_flags);

}  // namespace verbena::verbs
