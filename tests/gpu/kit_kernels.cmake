# Read by llama.cpp's own CMake for `./dev gpu kit`: of its many instances of kernel templates, only those of PDJOB_KIT_INSTANCES are built. With
# PDJOB_PREBUILT, none of its kernels is.
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/llama_units.cmake)

function(pdjob_kit_kernels)
  get_target_property(sources ggml-cuda SOURCES)
  if(PDJOB_PREBUILT)
    set(sources ${CMAKE_BINARY_DIR}/prebuilt.cpp)
    file(WRITE ${sources} "// The kernels come from elsewhere.\n")
  else()
    set(instances ${sources})
    list(FILTER instances INCLUDE REGEX "-instance-")
    list(FILTER sources EXCLUDE REGEX "-instance-")
    list(FILTER instances INCLUDE REGEX "${PDJOB_KIT_INSTANCES}")
    list(APPEND sources ${instances})
  endif()
  set_target_properties(ggml-cuda PROPERTIES SOURCES "${sources}")
endfunction()

cmake_language(DEFER CALL pdjob_kit_kernels)
