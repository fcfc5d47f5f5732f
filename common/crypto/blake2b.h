// BLAKE2b-256 over data that arrives in pieces: digests and derived keys. Value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace pdjob {

using Digest = std::array<std::byte, 32>;

class Blake2b {
 public:
  // `purpose`, at most 16 bytes, keeps digests of different uses apart. `key` is empty, or 16 to 64
  // bytes that a process must know to compute the same digest.
  explicit Blake2b(std::string_view purpose, std::span<const std::byte> key = {});
  ~Blake2b();
  Blake2b(const Blake2b&) = delete;
  Blake2b& operator=(const Blake2b&) = delete;

  Blake2b& add(std::span<const std::byte> bytes);
  Blake2b& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  // Adds it as eight bytes, little-endian.
  Blake2b& add(uint64_t number);
  // Returns the digest. Call it once.
  Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Compares in constant time.
bool equal_digests(const Digest& left, const Digest& right);

}  // namespace pdjob
