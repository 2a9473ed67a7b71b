# SPDX-License-Identifier: BSD-2-Clause
#
# Compiles rdma_core_check.c, which consists of static assertions, with the headers of each source tree in the list
# ${RDMA_CORE_SOURCE_DIR}. rdma-core's own build collects its headers in one folder and generates some of them. This
# script does only the part that libibverbs/driver.h needs.
find_package(Python3 COMPONENTS Interpreter REQUIRED)

# The number in `set(name "number...")` of rdma-core's CMakeLists.txt.
function(read_number source name result)
  file(STRINGS ${source}/CMakeLists.txt line REGEX "^set\\(${name} \"[0-9]+" LIMIT_COUNT 1)
  string(REGEX REPLACE "^set\\(${name} \"([0-9]+).*" "\\1" number "${line}")
  set(${result} ${number} PARENT_SCOPE)
endfunction()

# The headers of `source`, in `gathered`.
function(gather_headers source gathered abi)
  file(REMOVE_RECURSE ${gathered})  # what an earlier version of this script left may be links into the sources
  file(MAKE_DIRECTORY ${gathered}/kernel-abi)
  file(WRITE ${gathered}/config.h
       "#define IBVERBS_PABI_VERSION ${abi}\n#define VERBS_IOCTL_ONLY 0\n#define VERBS_WRITE_ONLY 0\n")
  foreach(pair rdma=kernel-headers/rdma ccan=ccan util=util)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 link)
    list(GET pair 1 folder)
    file(CREATE_LINK ${source}/${folder} ${gathered}/${link} SYMBOLIC)
  endforeach()
  file(MAKE_DIRECTORY ${gathered}/infiniband)
  file(GLOB own_headers ${source}/libibverbs/*.h)
  foreach(header ${own_headers} ${source}/kernel-headers/rdma/ib_user_ioctl_verbs.h)
    get_filename_component(name ${header} NAME)
    file(CREATE_LINK ${header} ${gathered}/infiniband/${name} SYMBOLIC)
  endforeach()
  file(GLOB abi_headers ${source}/kernel-headers/rdma/*.h)
  foreach(header ${abi_headers})
    get_filename_component(name ${header} NAME)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${source}/buildlib/make_abi_structs.py
                            ${header} ${gathered}/kernel-abi/${name}
                    OUTPUT_QUIET ERROR_QUIET)
  endforeach()
endfunction()

# The functions by which a layout is known are in the versions that layouts.h says, if this release has them.
function(check_versions source)
  file(READ ${source}/libibverbs/libibverbs.map.in map)
  file(READ ${CMAKE_CURRENT_SOURCE_DIR}/layouts.h layouts)
  string(REGEX MATCHALL "\"[a-z_0-9]+\", \"IBVERBS_[0-9.]+\"" known "${layouts}")
  foreach(pair ${known})
    string(REGEX REPLACE "^\"(.*)\", \"(.*)\"$" "\\1;\\2" pair ${pair})
    list(GET pair 0 symbol)
    list(GET pair 1 version)
    string(REPLACE "." "\\." version "${version}")
    if(map MATCHES "[ \t]${symbol};" AND NOT map MATCHES "\n${version} {[^}]*[ \t]${symbol};")
      message(FATAL_ERROR "${source}: ${symbol} is not in ${version}, as layouts.h says")
    endif()
  endforeach()
endfunction()

add_custom_target(verbena_rdma_core_check)
foreach(source ${RDMA_CORE_SOURCE_DIR})
  if(NOT EXISTS ${source}/libibverbs/driver.h)
    message(FATAL_ERROR "RDMA_CORE_SOURCE_DIR: ${source} is no source tree of rdma-core")
  endif()
  read_number(${source} PACKAGE_VERSION release)
  read_number(${source} IBVERBS_PABI_VERSION abi)
  set(gathered ${CMAKE_CURRENT_BINARY_DIR}/rdma-core-${release})
  gather_headers(${source} ${gathered} ${abi})
  check_versions(${source})
  set(check verbena_rdma_core_check_${release})
  add_library(${check} OBJECT EXCLUDE_FROM_ALL rdma_core_check.c)
  target_compile_definitions(${check} PRIVATE RDMA_CORE_RELEASE=${release} IBVERBS_PABI_VERSION=${abi})
  target_include_directories(${check} PRIVATE ${PROJECT_SOURCE_DIR}/provider)
  target_include_directories(${check} SYSTEM BEFORE PRIVATE ${gathered})
  target_compile_options(${check} PRIVATE -std=gnu11 -Wno-error)
  add_dependencies(verbena_rdma_core_check ${check})
endforeach()

if(VERBENA_TESTS)
  add_test(NAME provider.layout.agrees_with_rdma_core
           COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target verbena_rdma_core_check)
endif()
