# Warnings and sanitizers, only for pdjob's own code: libllama is built separately, always optimised.
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Wno-sign-conversion -Wno-missing-field-initializers
                    # False alarms of GCC 12 on std::variant at -O2.
                    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
# A release compiles each room as one file: a third of the time. GCC then thinks that a room's .cc files are headers.
if(CMAKE_UNITY_BUILD)
  add_compile_options(-Wno-subobject-linkage)
endif()
if(PDJOB_WERROR)
  add_compile_options(-Werror)
endif()
if(PDJOB_SANITIZE)
  add_compile_options(-fsanitize=${PDJOB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PDJOB_SANITIZE})
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
# Null pointers are left to AddressSanitizer, which reports each use of one, and alignment to the processor: only vector code depends on it. Both
# checks stand at each access: four fifths of UBSan's records, an eighth of the time to compile.
if(PDJOB_SANITIZE MATCHES undefined)
  add_compile_options(-fno-sanitize=null,alignment)
endif()
# At a fixed address: the records of UBSan's checks have addresses, and each start of each process would adjust and copy them all.
if(PDJOB_SANITIZE MATCHES address)
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()
# Most globals that AddressSanitizer would guard are these records, which each start would register. The library's own checks, above, see what it
# then misses in tables, and more.
if(PDJOB_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(--param=asan-globals=0)
endif()
# All code that libFuzzer explores must be instrumented; tests/fuzz adds its main.
if(PDJOB_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# What a test program itself does need not be instrumented in full; what it tests is. A quarter of the time of its compilation.
set(PDJOB_TEST_OPTIONS)
if(PDJOB_SANITIZE MATCHES undefined)
  set(PDJOB_TEST_OPTIONS -fno-sanitize=undefined)
endif()

# pdjob_library(NAME SOURCES... LINKS...): each folder declares its static library with this function.
function(pdjob_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  if(NOT ARG_SOURCES)
    add_library(pdjob_${name} INTERFACE)
    return()
  endif()
  add_library(pdjob_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(pdjob_${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
  pdjob_reuse_headers(pdjob_${name} pdjob_std_headers)
endfunction()

# pdjob_test(NAME SOURCES... LINKS... [LABELS...] [SHARDS n|each] [BY_ANOTHER]): one GoogleTest program, run by ctest. With SHARDS, in n processes
# at once, for tests that mostly wait; each: a process for each test. BY_ANOTHER: another test runs it.
function(pdjob_test name)
  cmake_parse_arguments(ARG "BY_ANOTHER" "SHARDS" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${PDJOB_TEST_OPTIONS})
  pdjob_reuse_headers(${name} pdjob_test_headers)
  if(ARG_BY_ANOTHER)
    return()
  endif()
  if(ARG_SHARDS)
    add_test(NAME ${name} COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/support/shards.py ${ARG_SHARDS} $<TARGET_FILE:${name}>)
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  # Each test has testing::TempDir() for itself: tests run side by side.
  set(files ${CMAKE_BINARY_DIR}/test_files/${name})
  file(MAKE_DIRECTORY ${files})
  set(environment "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp" "TEST_TMPDIR=${files}/")
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS "${ARG_LABELS}" ENVIRONMENT "${environment}")
endfunction()
