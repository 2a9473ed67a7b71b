# SPDX-License-Identifier: BSD-2-Clause
add_compile_options(-Wall -Wextra -Wshadow -Wvla -Wundef $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual> -Werror)
