# SPDX-License-Identifier: BSD-2-Clause
#
# cmake -DLIBRARY=… -DNM=… -DREADELF=… -P check_exports.cmake: a library that is loaded into any process exports nothing
# but the preload's entry points and asks for no C++ runtime.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${symbols}" symbols)
if(NOT symbols MATCHES "^([0-9a-f]+ T verbena_netlink\n[0-9a-f]+ T verbena_rdma_cm_open\n[0-9a-f]+ T verbena_refresh_counter\n[0-9a-f]+ T verbena_restore_node)?$")
  message(FATAL_ERROR "${LIBRARY} exports:\n${symbols}")
endif()
execute_process(COMMAND ${READELF} -d ${LIBRARY} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(dynamic MATCHES "libstdc\\+\\+|libgcc_s")
  message(FATAL_ERROR "${LIBRARY} needs a C++ runtime:\n${dynamic}")
endif()
