// What NVRTC made of the CUDA engine (tests/ptx.py, `translated`), run as a warp of 32 fibres.
#define TOGETHER_IN_FIBRES 32
#include <cmath>
#include <type_traits>

#include "fibres.h"
#include "flush.h"

// A register of PTX. Whole numbers are extended by the type that they are written with.
struct Register {
    uint64_t bits = 0;
    template <class T> void put(T x) {
        if constexpr (std::is_floating_point_v<T>) bits = 0, std::memcpy(&bits, &x, sizeof x);
        else bits = (uint64_t)(int64_t)x;
        if constexpr (std::is_unsigned_v<T>) bits = x;
    }
    template <class T> T get() const {
        T x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
};

template <class T> T number(uint64_t bits) {
    Register its;
    its.bits = bits;
    return its.get<T>();
}

// A conversion to a whole number: towards 0, none (NaN) to 0, and what is too large to the nearest.
template <class T, class F> T saturated(F x) {
    constexpr int BITS = sizeof(T) * 8 - std::is_signed_v<T>;
    const double end = std::ldexp(1.0, BITS), low = std::is_signed_v<T> ? -end : 0;
    if (x != x) return 0;
    if ((double)x >= end) return (T)(~(uint64_t)0 >> (64 - BITS));
    return (double)x < low ? (T)low : (T)x;
}

template <class T> T shifted_left(T x, uint32_t n) { return n < sizeof(T) * 8 ? (T)(x << n) : (T)0; }
template <class T> T shifted_right(T x, uint32_t n) {
    if (n >= sizeof(T) * 8) return std::is_signed_v<T> && x < 0 ? (T)-1 : (T)0;
    return x >> n;
}

// The low bits of x, `count` of them, in place of those of y from bit `first` on.
static uint32_t inserted(uint32_t x, uint32_t y, uint32_t first, uint32_t count) {
    const uint32_t mask = (uint32_t)(((uint64_t)1 << count) - 1) << first;
    return (y & ~mask) | ((x << first) & mask);
}

// Of the thread whose number differs by `apart`; all threads of the warp must be there.
static uint32_t shuffled(uint32_t x, uint32_t apart, uint32_t last, uint32_t who) {
    if (last != 31 || who != ~0u) std::abort();
    float y;
    std::memcpy(&y, &x, 4);
    y = across(y, apart);
    std::memcpy(&x, &y, 4);
    return x;
}
static void met(uint32_t who) {
    if (who != ~0u) std::abort();
    meet();
}

static thread_local uint32_t block;
#define SHARED ((uint8_t*)memory)
#include TRANSLATED

struct Launch {
    int entry;
    uint8_t** arguments;
};
// True if all threads of each block have met equally often.
extern "C" int launch(int entry, int blocks, int words, uint8_t** arguments) {
    const Flush flush;
    Launch its = {entry, arguments};
    for (block = 0; block < (uint32_t)blocks; block++) {
        const auto work = [](void* with) { run(((Launch*)with)->entry, ((Launch*)with)->arguments); };
        if (!run_fibres(words, work, &its)) return 0;
    }
    return 1;
}
