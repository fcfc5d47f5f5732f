// Seeded random numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014), the same on every machine.
// Value.
//
// For decisions and tests only: one number reveals all others, past and future. Use entropy() for
// an id or a secret that leaves a process. Cores receive a Random as an argument. `mix` serves
// numbers that are keyed, not drawn, such as sampling by (seed, position).
#pragma once

#include <cstdint>
#include <functional>

namespace pdjob {

// Scrambles 64 bits, bijectively. Good enough to turn (seed, position) into independent draws.
constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    const uint64_t drawn = mix(state_);
    state_ += 0x9e3779b97f4a7c15;
    return drawn;
  }
  // Uniform in [0, bound). Requires: bound > 0. The modulo bias is below 2^-32 for bounds below
  // 2^32.
  uint64_t below(uint64_t bound) { return next() % bound; }
  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }

 private:
  uint64_t state_;
};

// 64 unpredictable bits from the operating system: seeds, ids and secrets of real processes.
// Fetched 512 bytes at a time, so that an id costs nanoseconds. Shells only. Thread-safe.
uint64_t entropy();

// The source of a core's id bits: entropy() in real processes, a seeded Random in tests.
using BitSource = std::function<uint64_t()>;

}  // namespace pdjob
