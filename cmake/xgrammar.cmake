# XGrammar, prebuilt by `./dev setup` into a cache outside the tree: static, optimised, one pinned source.
if(NOT PDJOB_XGRAMMAR_DIR)
  message(FATAL_ERROR "PDJOB_XGRAMMAR_DIR is not set. Configure through `./dev build`, which builds XGrammar once and passes its place.")
endif()
add_library(xgrammar INTERFACE)
target_include_directories(xgrammar SYSTEM INTERFACE
  ${PDJOB_XGRAMMAR_DIR}/source/include
  ${PDJOB_XGRAMMAR_DIR}/source/3rdparty/dlpack/include
  ${PDJOB_XGRAMMAR_DIR}/source/3rdparty/picojson)
target_link_libraries(xgrammar INTERFACE ${PDJOB_XGRAMMAR_DIR}/build/libxgrammar.a Threads::Threads)
# The library's logging, which engine/grammar/library_log.cc replaces. Its definitions match the library's own build.
add_library(xgrammar_internal INTERFACE)
target_include_directories(xgrammar_internal SYSTEM INTERFACE ${PDJOB_XGRAMMAR_DIR}/source/cpp)
target_compile_definitions(xgrammar_internal INTERFACE
  XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_link_libraries(xgrammar_internal INTERFACE xgrammar)
