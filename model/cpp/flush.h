// Denormal numbers are 0 on this thread for as long as one of these lives: what an operation takes, and what it gives.
//
// Of a net that is nearly trained many probabilities, and what the loss sends back through them, are below 1e-38. Some
// CPUs are slow with such numbers (docs/performance.md: a step takes up to three times as long). A GPU does the same with
// --ftz=true. DENORMALS_KEPT: as versions before computed.
#pragma once

#include <cstdint>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

class Flush {
#if defined(DENORMALS_KEPT)
  public:
    Flush() {}
#elif defined(__SSE2__)
    const uint32_t before = _mm_getcsr();

  public:
    Flush() { _mm_setcsr(before | 0x8040); }  // flush to zero, denormals are zero
    ~Flush() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;

  public:
    Flush() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" : : "r"(before | 1u << 24));
    }
    ~Flush() { asm volatile("msr fpcr, %0" : : "r"(before)); }
#else
  public:
    Flush() {}
#endif
    Flush(const Flush&) = delete;
};
