# libllama, prebuilt by `./dev setup` into a cache outside the tree (design: decisions/0003): static, optimised, one pinned source.
if(NOT PDJOB_LLAMA_DIR)
  message(FATAL_ERROR "PDJOB_LLAMA_DIR is not set. Configure through `./dev build`, which builds libllama once and passes its place.")
endif()
add_library(llama INTERFACE)
target_include_directories(llama SYSTEM INTERFACE
  ${PDJOB_LLAMA_DIR}/source/include ${PDJOB_LLAMA_DIR}/source/ggml/include)
# Two internal headers for engine/kv_spans.cc, and ggml's buffer interface for engine/shared_kv.cc.
add_library(llama_internal INTERFACE)
target_include_directories(llama_internal SYSTEM INTERFACE
  ${PDJOB_LLAMA_DIR}/source/src ${PDJOB_LLAMA_DIR}/source/ggml/src)
target_link_libraries(llama_internal INTERFACE llama)
if(PDJOB_CUDA)
  # Not FindCUDAToolkit: CMake 3.25's fails if nvToolsExt is missing, as in CUDA 13.
  foreach(library cudart cublas)
    find_library(CUDA_${library} ${library} REQUIRED
                 HINTS ENV CUDAToolkit_ROOT PATH_SUFFIXES lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib)
  endforeach()
  set(LLAMA_CUDA ${PDJOB_LLAMA_DIR}/build/ggml/src/ggml-cuda/libggml-cuda.a ${CUDA_cudart} ${CUDA_cublas})
endif()
# Of several variants, engine/kernels chooses one.
if(PDJOB_CPU_VARIANTS_DIR)
  file(GLOB LLAMA_CPU ${PDJOB_CPU_VARIANTS_DIR}/*.o)
else()
  set(LLAMA_CPU ${PDJOB_LLAMA_DIR}/build/ggml/src/libggml-cpu.a)
endif()
target_link_libraries(llama INTERFACE
  ${PDJOB_LLAMA_DIR}/build/src/libllama.a
  ${PDJOB_LLAMA_DIR}/build/ggml/src/libggml.a
  ${LLAMA_CUDA}
  ${LLAMA_CPU}
  ${PDJOB_LLAMA_DIR}/build/ggml/src/libggml-base.a
  Threads::Threads ${CMAKE_DL_LIBS})
# llama.cpp's own helpers: chat templates (Jinja) and JSON schema to grammar.
add_library(llama_common INTERFACE)
target_include_directories(llama_common SYSTEM INTERFACE
  ${PDJOB_LLAMA_DIR}/source/common ${PDJOB_LLAMA_DIR}/source/vendor)
target_link_libraries(llama_common INTERFACE
  ${PDJOB_LLAMA_DIR}/build/common/libllama-common.a
  ${PDJOB_LLAMA_DIR}/build/common/libllama-common-base.a
  llama)
