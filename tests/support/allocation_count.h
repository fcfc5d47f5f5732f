// Counts the allocations of a whole program, in the threads that ask for it. For one file of a test
// program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// GCC ships without the header that declares this (sanitizer/allocator_interface.h).
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
#endif

namespace {

thread_local bool counted = false;
std::atomic<uint64_t> allocations_made = 0;
std::atomic<int64_t> allocations_alive = 0;

void count_allocation() {
  if (counted) {
    ++allocations_made;
    ++allocations_alive;
  }
}
void count_release(const volatile void* memory) {
  if (counted && memory != nullptr) {
    --allocations_alive;
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer has its own allocators, which must stay.
[[maybe_unused]] const int hooked = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void* /*memory*/, size_t /*size*/) { count_allocation(); },
    [](const volatile void* memory) { count_release(memory); });

}  // namespace
#else
}  // namespace

// Not inlined. Otherwise the compiler sees that malloc pairs with delete, and warns.
[[gnu::noinline]] void* operator new(size_t size) {
  count_allocation();
  void* const memory = std::malloc(size);
  if (memory == nullptr) {
    std::abort();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  count_release(memory);
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t /*size*/) noexcept {
  operator delete(memory);
}
#endif
