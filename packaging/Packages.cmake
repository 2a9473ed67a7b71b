# SPDX-License-Identifier: BSD-2-Clause
#
# The Debian packages, one for each component (cpack-deb: CPACK_DEBIAN_<COMPONENT>_*).
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${VERBENA_PACKAGES})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_VENDOR Verbena)
set(CPACK_PACKAGE_CONTACT "The maintainers of Verbena <verbena@packages.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS  # whatever the umask is
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Libraries of another root are in no package of this machine: dpkg-shlibdeps(1) finds them, and VERBENA_ROOT/DEBIAN.
if(VERBENA_ROOT)
  file(GLOB CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${VERBENA_ROOT}/lib/*-linux-gnu ${VERBENA_ROOT}/usr/lib/*-linux-gnu)
endif()
set(architecture_aarch64 arm64)
set(architecture_x86_64 amd64)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${architecture_${CMAKE_SYSTEM_PROCESSOR}})

# ibv_devinfo shows the device that a program finds; libibverbs1 comes with any verbs program.
set(CPACK_DEBIAN_VERBENA_PACKAGE_NAME verbena)
set(CPACK_DEBIAN_VERBENA_PACKAGE_RECOMMENDS "ibverbs-utils, librdmacm1, binutils")
set(CPACK_DEBIAN_VERBENA_DESCRIPTION
"an RDMA adapter made of software alone
verbena run -- PROGRAM gives an unmodified program that uses libibverbs or
librdmacm a device named verbena0: without RDMA hardware, kernel module, root
or daemon.")

set(CPACK_DEBIAN_VERBS-CONFORMANCE_PACKAGE_NAME verbs-conformance)
set(CPACK_DEBIAN_VERBS-CONFORMANCE_PACKAGE_SUGGESTS verbena)
set(CPACK_DEBIAN_VERBS-CONFORMANCE_DESCRIPTION
"tests an RDMA device clause by clause
verbs-conformance checks what the manual pages and the InfiniBand
specification promise, on any verbs device: adapters, the kernel's rxe and
siw, and verbena's.")

set(CPACK_DEBIAN_VERBENA-DEV_PACKAGE_NAME verbena-dev)
set(CPACK_DEBIAN_VERBENA-DEV_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_VERBENA-DEV_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_VERBENA-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_VERBENA-DEV_PACKAGE_DEPENDS "verbena (>= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_VERBENA-DEV_PACKAGE_RECOMMENDS "libibverbs-dev, librdmacm-dev")
set(CPACK_DEBIAN_VERBENA-DEV_DESCRIPTION
"tests of RDMA programs with verbena
A CMake package with verbena_add_test(), a pkg-config file, and a header with
the vendor_err numbers of failed completions.")
include(CPack)
