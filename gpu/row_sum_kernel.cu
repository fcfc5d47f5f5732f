// pdjob_row_sum: what proves rows in a GPU's memory: a sum over their words, each mixed with its
// place, so that threads and ranges add up in any order. Word i of row r of window w is its bytes
// [8 i, 8 i + 8), little-endian, with zeros past the row's end. It finds wrong, stale, missing and
// misplaced rows, as row_digest.h does in the host's memory; it does not stop a forger.
//
// NVRTC makes row_sum_ptx.inc of this file (tests/unit/gpu/row_sum_ptx_test.cc), and
// libfakecudart.so compiles it as C++. No headers: NVRTC has none.

using Word = unsigned long long;

// As struct GpuWindow of gpu.h.
struct RowSumWindow {
  const unsigned char* base;  // Of row 0.
  unsigned row_bytes;
};

namespace {

// The finalizer of MurmurHash3: every bit of the result depends on every bit of the word.
__device__ Word mixed(Word word) {
  word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCD;
  word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53;
  return word ^ (word >> 33);
}

// Odd numbers with no pattern: the fractions of the square roots of 2 (and 1), 3 and 5.
__device__ Word place(Word window, Word row, Word word) {
  return window * 0x6A09E667F3BCC909 + row * 0xBB67AE8584CAA73B + word * 0x3C6EF372FE94F82B;
}

template <class Piece>
__device__ Word load_by(const unsigned char* from) {
  Word word = 0;
  for (unsigned i = 0; i < 8 / sizeof(Piece); ++i) {
    word |= Word{reinterpret_cast<const Piece*>(from)[i]} << (8 * sizeof(Piece) * i);
  }
  return word;
}

__device__ Word load(const unsigned char* from, unsigned bytes) {
  const Word address = reinterpret_cast<Word>(from);
  if (bytes < 8) {
    Word word = 0;
    for (unsigned i = 0; i < bytes; ++i) {
      word |= Word{from[i]} << (8 * i);
    }
    return word;
  }
  if (address % 8 == 0) {
    return load_by<Word>(from);
  }
  return address % 4 == 0   ? load_by<unsigned>(from)
         : address % 2 == 0 ? load_by<unsigned short>(from)
                            : load_by<unsigned char>(from);
}

}  // namespace

// Blocks are at most 32 threads wide, which read a row together, and 8 high, a power of two in all;
// the grid is as high as there are windows. The sum of each block goes to sums[x + y * width].

extern "C" __global__ void pdjob_row_sum(const RowSumWindow* windows, Word first_row, Word rows,
                                         Word* sums) {
  const RowSumWindow window = windows[blockIdx.y];
  Word sum = 0;
  for (Word row = first_row + blockIdx.x * blockDim.y + threadIdx.y; row < first_row + rows;
       row += gridDim.x * blockDim.y) {
    const unsigned char* const begin = window.base + row * window.row_bytes;
    for (unsigned i = threadIdx.x; 8 * i < window.row_bytes; i += blockDim.x) {
      sum += mixed(load(begin + 8 * i, window.row_bytes - 8 * i) ^ place(blockIdx.y, row, i));
    }
  }
  __shared__ Word of_thread[32 * 8];
  const unsigned thread = threadIdx.x + threadIdx.y * blockDim.x;
  of_thread[thread] = sum;
  for (unsigned half = blockDim.x * blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      of_thread[thread] += of_thread[thread + half];
    }
  }
  if (thread == 0) {
    sums[blockIdx.x + blockIdx.y * gridDim.x] = of_thread[0];
  }
}
