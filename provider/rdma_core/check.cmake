# SPDX-License-Identifier: BSD-2-Clause
#
# Compiles rdma_core_check.c, which consists of static assertions, with the headers in
# ${RDMA_CORE_SOURCE_DIR}. rdma-core's own build collects its headers in one folder and generates some of
# them. This script does only the part that libibverbs/driver.h needs.
find_package(Python3 COMPONENTS Interpreter REQUIRED)

set(gathered ${CMAKE_CURRENT_BINARY_DIR}/rdma-core)
file(MAKE_DIRECTORY ${gathered}/kernel-abi)
file(WRITE ${gathered}/config.h "#define IBVERBS_PABI_VERSION 34\n#define VERBS_IOCTL_ONLY 0\n#define VERBS_WRITE_ONLY 0\n")
foreach(pair infiniband=libibverbs rdma=kernel-headers/rdma ccan=ccan util=util)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 link)
  list(GET pair 1 folder)
  file(CREATE_LINK ${RDMA_CORE_SOURCE_DIR}/${folder} ${gathered}/${link} SYMBOLIC)
endforeach()
file(GLOB abi_headers ${RDMA_CORE_SOURCE_DIR}/kernel-headers/rdma/*.h)
foreach(header ${abi_headers})
  get_filename_component(name ${header} NAME)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${RDMA_CORE_SOURCE_DIR}/buildlib/make_abi_structs.py
                          ${header} ${gathered}/kernel-abi/${name}
                  OUTPUT_QUIET ERROR_QUIET)
endforeach()

add_library(verbena_rdma_core_check OBJECT rdma_core_check.c)
target_include_directories(verbena_rdma_core_check PRIVATE ${PROJECT_SOURCE_DIR}/provider)
target_include_directories(verbena_rdma_core_check SYSTEM BEFORE PRIVATE ${gathered})
target_compile_options(verbena_rdma_core_check PRIVATE -std=gnu11 -Wno-error)

if(VERBENA_TESTS)
  add_test(NAME provider.layout.agrees_with_rdma_core
           COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target verbena_rdma_core_check)
endif()
