# The headers that nearly every file includes are parsed once: a third of the time of a build. Only for GCC: the other tools (clang-tidy, the
# fuzzers' clang) read files as they are, so a file still has to include what it uses. Not for releases: at -O2, GCC 12 raises false alarms on
# every std::string that comes from a precompiled header.
option(PDJOB_PCH "Parse the common headers once" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR CMAKE_BUILD_TYPE STREQUAL Release)
  set(PDJOB_PCH OFF)
endif()

set(PDJOB_STD_HEADERS
    <algorithm> <array> <atomic> <cerrno> <charconv> <chrono> <condition_variable> <cstddef> <cstdint> <cstdio> <cstring> <deque> <functional> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <tuple> <unordered_map> <unordered_set> <utility> <variant>
    <vector>)

# pdjob_headers(NAME HEADERS...): the target whose precompiled headers others reuse. It says of itself what ccache needs to share objects between
# checkouts, since the bytes of a precompiled header differ from one to the next.
function(pdjob_headers name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINKS;OPTIONS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  string(SHA256 sum "${CMAKE_CXX_COMPILER_VERSION};${GTest_VERSION};${CMAKE_BUILD_TYPE};${PDJOB_SANITIZE};${ARG_HEADERS};${ARG_OPTIONS}")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.gch.sum ${sum})
endfunction()

# pdjob_reuse_headers(TARGET NAME)
function(pdjob_reuse_headers target name)
  if(PDJOB_PCH)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

if(PDJOB_PCH)
  add_compile_options(-fpch-preprocess) # For ccache.
  pdjob_headers(pdjob_std_headers HEADERS ${PDJOB_STD_HEADERS})
endif()
