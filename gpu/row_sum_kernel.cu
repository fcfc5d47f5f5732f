// pdjob_row_sum: what proves rows in a GPU's memory: a sum over their words, each mixed with its
// place, so that threads and ranges add up in any order. Word i of row r of window w is its bytes
// [8 i, 8 i + 8), little-endian, with zeros past the row's end. It finds wrong, stale, missing and
// misplaced rows, as row_digest.h does in the host's memory; it does not stop a forger.
//
// It copies the rows that it reads, where a window says so: a batch of copies costs 0.2 ms whatever
// its size (docs/measurements/gpu.md).
//
// NVRTC makes row_sum_ptx.inc of this file (tests/unit/gpu/row_sum_ptx_test.cc), and
// libfakecudart.so compiles it as C++. No headers: NVRTC has none.

using Word = unsigned long long;

// As struct GpuWindow of gpu.h.
struct RowSumWindow {
  const unsigned char* base;  // Of row 0.
  unsigned row_bytes;
  unsigned char* to;  // Of row 0's copy; null: none.
};

namespace {

// Odd numbers with no pattern: the fractions of the square roots of 2 (and 1), 3 and 5.
constexpr Word kWindowStep = 0x6A09E667F3BCC909;
constexpr Word kRowStep = 0xBB67AE8584CAA73B;
constexpr Word kWordStep = 0x3C6EF372FE94F82B;

// The finalizer of MurmurHash3: every bit of the result depends on every bit of the word.
__device__ Word mixed(Word word) {
  word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCD;
  word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53;
  return word ^ (word >> 33);
}

struct alignas(16) Pair {
  Word words[2];
};

__device__ Word sum_of(Word word, Word place) { return mixed(word ^ place); }
__device__ Word sum_of(Pair pair, Word place) {
  return sum_of(pair.words[0], place) + sum_of(pair.words[1], place + kWordStep);
}

// This thread's part of a row whose ends are aligned to Unit: whole words. Loads do not wait for
// each other.
template <class Unit, unsigned kAtOnce>
__device__ Word sum_units(const unsigned char* from, unsigned char* to, unsigned bytes,
                          Word place) {
  constexpr unsigned kUnitBytes = sizeof(Unit);
  constexpr unsigned kWords = kUnitBytes / sizeof(Word);
  const unsigned units = bytes / kUnitBytes;
  Word sum = 0;
  for (unsigned first = threadIdx.x; first < units; first += kAtOnce * blockDim.x) {
    Unit unit[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned i = first + k * blockDim.x;
      if (i < units) {
        unit[k] = reinterpret_cast<const Unit*>(from)[i];
      }
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned i = first + k * blockDim.x;
      if (i < units) {
        if (to != nullptr) {
          reinterpret_cast<Unit*>(to)[i] = unit[k];
        }
        sum += sum_of(unit[k], place + i * kWords * kWordStep);
      }
    }
  }
  return sum;
}

// The same, of a row whose ends are aligned to less than a word.
template <class Piece>
__device__ Word sum_pieces(const unsigned char* from, unsigned char* to, unsigned bytes,
                           Word place) {
  constexpr unsigned kPieceBytes = sizeof(Piece);
  constexpr unsigned kPieces = sizeof(Word) / kPieceBytes;
  const unsigned pieces = bytes / kPieceBytes;
  Word sum = 0;
  for (unsigned i = threadIdx.x; i * kPieces < pieces; i += blockDim.x) {
    Word word = 0;
    for (unsigned at = i * kPieces; at < pieces && at < (i + 1) * kPieces; ++at) {
      const Piece piece = reinterpret_cast<const Piece*>(from)[at];
      if (to != nullptr) {
        reinterpret_cast<Piece*>(to)[at] = piece;
      }
      word |= Word{piece} << (8 * kPieceBytes * (at % kPieces));
    }
    sum += sum_of(word, place + i * kWordStep);
  }
  return sum;
}

}  // namespace

// Blocks are at most 32 threads wide, which read a row together, and 8 high, a power of two in all;
// the grid is as high as there are windows. The sum of each block goes to sums[x + y * width].

extern "C" __global__ void pdjob_row_sum(const RowSumWindow* windows, Word first_row, Word rows,
                                         Word* sums) {
  const RowSumWindow window = windows[blockIdx.y];
  const unsigned bytes = window.row_bytes;
  const Word ends = reinterpret_cast<Word>(window.base) | reinterpret_cast<Word>(window.to) | bytes;
  Word sum = 0;
  for (Word row = first_row + blockIdx.x * blockDim.y + threadIdx.y; row < first_row + rows;
       row += gridDim.x * blockDim.y) {
    const unsigned char* const from = window.base + row * bytes;
    unsigned char* const to = window.to == nullptr ? nullptr : window.to + row * bytes;
    const Word place = blockIdx.y * kWindowStep + row * kRowStep;
    sum += ends % 16 == 0  ? sum_units<Pair, 4>(from, to, bytes, place)
           : ends % 8 == 0 ? sum_units<Word, 1>(from, to, bytes, place)
           : ends % 4 == 0 ? sum_pieces<unsigned>(from, to, bytes, place)
           : ends % 2 == 0 ? sum_pieces<unsigned short>(from, to, bytes, place)
                           : sum_pieces<unsigned char>(from, to, bytes, place);
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
