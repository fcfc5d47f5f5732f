# shellcheck shell=bash disable=SC2034,SC2154 # ./dev reads it, and has the names.
# `./dev gpu kit`: one file with all that gpu_day.py runs on a machine that has a GPU and little else. Made without a GPU.

# CUDA's compiler and libraries, from PyPI. cuBLAS is only linked with (400 MiB).
CUDA_VERSION=13.0.88
CUDA_WHEELS=(
  nvidia-cuda-nvcc==$CUDA_VERSION 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
  nvidia-cuda-crt==$CUDA_VERSION 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
  nvidia-nvvm==$CUDA_VERSION c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
  nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  nvidia-cuda-cccl==13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
  nvidia-cublas==13.1.0.3 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171)
CUDA_ROOT=$CACHE/cuda-$CUDA_VERSION

# libllama's kernels that the kit's model needs: all but these many instances of the same templates, which would not fit. A program that
# needs another one says so, and ends.
KIT_INSTANCES='fattn-vec-instance-(q8_0-q8_0|f16-f16)|fattn-mma-f16-instance-ncols1_[0-9]+-ncols2_[14]\.|mmq-instance-(q4_0|q4_1|q8_0)'
KIT_PROGRAMS=(gpu_probe gpu_test gpu_ipc_test gpu_nccl_test gpu_engine_test pdjob)
# Of 6 layers, as that of the tests; its weights of 4 bits travel in half the space.
KIT_MODEL=$PDJOB_MODELS/smollm2-6-layers-q4_0.gguf
KIT_MIB_MAX=52
# The programs are alike, so the compressor looks back over all of them.
KIT_XZ=(xz --threads=1 --lzma2=preset=5,dict=256MiB --stdout)

fetch_cuda() {
  local temporary wheel index library
  [[ ! -e $CUDA_ROOT/complete ]] || return 0
  rm --recursive --force "$CUDA_ROOT"
  mkdir -p "$CUDA_ROOT/lib"
  say "fetching CUDA's compiler and libraries (530 MB)"
  for ((index = 0; index < ${#CUDA_WHEELS[@]}; index += 2)); do
    temporary=$(mktemp --directory "$CACHE/download.XXXXXX")
    wheel=$(fetch "$temporary/wheel" "${CUDA_WHEELS[index + 1]}" "${CUDA_WHEELS[index]}")
    python3 -m zipfile --extract "$wheel" "$temporary"
    cp --recursive "$temporary"/nvidia/cu13/. "$CUDA_ROOT"
    rm --recursive --force "$temporary"
  done
  chmod --recursive u+x "$CUDA_ROOT/bin" "$CUDA_ROOT/nvvm/bin"
  ln --symbolic lib "$CUDA_ROOT/lib64"
  for library in "$CUDA_ROOT"/lib/*.so.*; do
    ln --symbolic --force "$(basename "$library")" "${library%%.so.*}.so"
  done
  touch "$CUDA_ROOT/complete"
}

# PDJOB_GGML_CUDA in the environment: libllama's kernels that were built before, libggml-cuda.a or libggml-cuda.a.xz of this libllama for these GPUs.
ensure_llama_kit() {
  local prebuilt=${PDJOB_GGML_CUDA:-} flags key
  locked cuda fetch_cuda
  export CUDACXX=$CUDA_ROOT/bin/nvcc CUDAToolkit_ROOT=$CUDA_ROOT
  flags=("${LLAMA_CUDA_FLAGS[@]}" "-DCMAKE_CUDA_COMPILER=$CUDACXX" "-DCMAKE_CUDA_ARCHITECTURES=${PDJOB_CUDA_ARCHITECTURES:-90}"
    "-DPDJOB_KIT_INSTANCES=$KIT_INSTANCES" "-DPDJOB_PREBUILT=${prebuilt:+ON}")
  key=$({ llama_recipe; cat tests/gpu/kit_kernels.*; printf '%s\n' "${flags[@]}"; [[ -z $prebuilt ]] || cat "$prebuilt"; } |
    sha256sum | cut --characters=1-12)
  PDJOB_LLAMA_DIR=$CACHE/llama-$LLAMA_VERSION-kit-$key
  locked llama-kit build_llama_kit "$PDJOB_LLAMA_DIR" "$prebuilt" "${flags[@]}"
}

build_llama_kit() {
  local root=$1 prebuilt=$2 kernels=$1/build/ggml/src/ggml-cuda/libggml-cuda.a
  shift 2
  [[ ! -e $root/kit ]] || return 0
  build_llama "$root" "$@" "-DCMAKE_PROJECT_llama.cpp_INCLUDE=$PWD/tests/gpu/kit_kernels.cmake"
  python3 tests/gpu/kit_kernels.py "${prebuilt:-$kernels}" "$KIT_INSTANCES" "$kernels" || die "gpu kit: cannot take the kernels from ${prebuilt:-$kernels}"
  touch "$root/kit"
}

# kit_libraries FOLDER: prints the files of its programs' libraries, but those that belong to the other machine.
kit_libraries() {
  LD_LIBRARY_PATH=$1 ldd "${KIT_PROGRAMS[@]/#/$1/}" | awk '$3 ~ /^\// { print $3 }' | sort --unique |
    grep --invert-match --extended-regexp '/(libc|libm|libpthread|libdl|librt|libresolv|libstdc\+\+|libgcc_s|libcudart|libcublas|libcublasLt)\.so'
}

make_kit_model() {
  local partial=$KIT_MODEL.partial
  [[ ! -e $KIT_MODEL ]] || return 0
  build dev quantize_model
  build/dev/quantize_model "$MODEL" "$partial" q4_0 {4..27} >&2
  mv "$partial" "$KIT_MODEL"
}

gpu_kit() {
  local out=build/gpu-kit.tar.xz kit=build/gpu_kit/kit program library bytes
  ensure_model
  make_kit_model
  build gpu_kit "${KIT_PROGRAMS[@]}"
  say "packing $out"
  rm --recursive --force "$kit"
  mkdir -p "$kit/bin" "$kit/lib"
  for program in "${KIT_PROGRAMS[@]}"; do
    strip --strip-all -o "$kit/bin/$program" "build/gpu_kit/$program"
  done
  while read -r library; do
    strip --strip-unneeded -o "$kit/lib/$(basename "$library")" "$library"
  done < <(kit_libraries "$PWD/build/gpu_kit")
  cp tests/gpu/gpu_day.py tests/gpu/gpu_end_to_end.py "$kit"
  cp "$KIT_MODEL" "$kit/model.gguf"
  # Those with kernels are last, one after the other.
  (cd "$kit" && tar --create --owner=0 --group=0 --transform='s,^,pdjob-gpu-kit/,' ./*.py model.gguf lib "${KIT_PROGRAMS[@]/#/bin/}") |
    "${KIT_XZ[@]}" >"$out.partial"
  mv "$out.partial" "$out"
  bytes=$(stat --format=%s "$out")
  say "$out: $((bytes >> 20)) MiB of at most $KIT_MIB_MAX. On a machine with a GPU: ./dev gpu --kit $out, or without the tree:"
  say "  python3 -m tarfile -e gpu-kit.tar.xz . && python3 pdjob-gpu-kit/gpu_day.py"
  ((bytes <= KIT_MIB_MAX << 20)) || die "gpu kit: that is too large"
}
