// Vectors of L float lanes that give the same bits on every CPU: AVX-512, AVX2, NEON, or none of them.
//
// They are GCC's and Clang's vector types; the three operations that those lack (fused multiply-add, square root, floor)
// are an instruction of each kind of CPU, and elsewhere the C library's, lane by lane, with the same result. What makes the bits equal: every operation here is exactly rounded by IEEE 754 (sums, products, quotients,
// square roots, fused multiply-adds that are written as such), the compiler may not contract or reorder
// (-ffp-contract=off, no -ffast-math), the transcendental functions are polynomials of ours, and lanes never meet
// but in `total`, whose order is fixed. The width of a register only says how many instructions a vector takes.
#pragma once

#include <cstdint>
#include <cstring>

#define INLINE_MEMBER __attribute__((always_inline)) inline
#define INLINE static INLINE_MEMBER
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define REGISTER_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#define REGISTER_LANES 8
#else
#define REGISTER_LANES 4
#endif

// A vector is one register, or two halves. Halves are copied as registers: as bytes they would go in smaller pieces.
#define HALVES(KIND) \
    KIND<L / 2> low, high; \
    KIND() = default; \
    INLINE_MEMBER KIND(KIND<L / 2> low, KIND<L / 2> high) : low(low), high(high) {} \
    INLINE_MEMBER KIND(const KIND& other) : low(other.low), high(other.high) {} \
    INLINE_MEMBER KIND& operator=(const KIND& other) { \
        low = other.low, high = other.high; \
        return *this; \
    }
template <int L, bool FITS = (L <= REGISTER_LANES)> struct Floats {
    typedef float Reg __attribute__((vector_size(4 * L)));
    Reg v;
};
template <int L> struct Floats<L, false> {
    HALVES(Floats)
};
template <int L, bool FITS = (L <= REGISTER_LANES)> struct Ints {  // masks too: all bits of a lane or none
    typedef int32_t Reg __attribute__((vector_size(4 * L)));
    Reg v;
};
template <int L> struct Ints<L, false> {
    HALVES(Ints)
};
#undef HALVES
#define T template <int L> INLINE
#define FITS (L <= REGISTER_LANES)

// These operations on one register R; what has no instruction takes the general form.
template <class R> INLINE R fma_of(R a, R b, R c) {
    for (unsigned i = 0; i < sizeof(R) / 4; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
template <class R> INLINE R root_of(R x) {
    for (unsigned i = 0; i < sizeof(R) / 4; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
}
template <class R> INLINE R floor_of(R x) {
    for (unsigned i = 0; i < sizeof(R) / 4; i++) x[i] = __builtin_floorf(x[i]);
    return x;
}
template <class R> INLINE R above_of(R a, R b) { return a > b ? a : b; }  // GCC makes two instructions of it
template <class R> INLINE R below_of(R a, R b) { return a < b ? a : b; }
#define SPECIAL template <> inline __attribute__((always_inline))
#if REGISTER_LANES >= 8
#include <immintrin.h>
SPECIAL __m256 fma_of(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
SPECIAL __m256 root_of(__m256 x) { return _mm256_sqrt_ps(x); }
SPECIAL __m256 floor_of(__m256 x) { return _mm256_floor_ps(x); }
SPECIAL __m256 above_of(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
SPECIAL __m256 below_of(__m256 a, __m256 b) { return _mm256_min_ps(a, b); }
#endif
#if REGISTER_LANES == 16
SPECIAL __m512 fma_of(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
SPECIAL __m512 root_of(__m512 x) { return _mm512_sqrt_ps(x); }
SPECIAL __m512 floor_of(__m512 x) { return _mm512_floor_ps(x); }
SPECIAL __m512 above_of(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
SPECIAL __m512 below_of(__m512 a, __m512 b) { return _mm512_min_ps(a, b); }
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
SPECIAL float32x4_t fma_of(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
SPECIAL float32x4_t root_of(float32x4_t x) { return vsqrtq_f32(x); }
SPECIAL float32x4_t floor_of(float32x4_t x) { return vrndmq_f32(x); }
#endif
#undef SPECIAL

T Floats<L> all(float x) {
    if constexpr (FITS) return {x - typename Floats<L>::Reg{}};
    else return {all<L / 2>(x), all<L / 2>(x)};
}
T Ints<L> all(int32_t x) {
    if constexpr (FITS) return {x - typename Ints<L>::Reg{}};
    else return {all<L / 2>(x), all<L / 2>(x)};
}
// A register at a time: copies of bytes would go in pieces, or through memory.
#define MEMORY(KIND, E) \
    T KIND<L> load(const E* p) { \
        typedef typename KIND<L < REGISTER_LANES ? L : REGISTER_LANES>::Reg Any __attribute__((may_alias, aligned(4))); \
        if constexpr (FITS) return {*(const Any*)p}; \
        else return {load<L / 2>(p), load<L / 2>(p + L / 2)}; \
    } \
    T void store(E* p, KIND<L> x) { \
        typedef typename KIND<L < REGISTER_LANES ? L : REGISTER_LANES>::Reg Any __attribute__((may_alias, aligned(4))); \
        if constexpr (FITS) *(Any*)p = x.v; \
        else store<L / 2>(p, x.low), store<L / 2>(p + L / 2, x.high); \
    }
MEMORY(Floats, float)
MEMORY(Ints, int32_t)
#undef MEMORY

#define UNARY(MADE, name, TAKEN, expression) \
    T MADE<L> name(TAKEN<L> a) { \
        if constexpr (FITS) return {expression}; \
        else return {name<L / 2>(a.low), name<L / 2>(a.high)}; \
    }
#define BINARY(MADE, name, TAKEN, expression) \
    T MADE<L> name(TAKEN<L> a, TAKEN<L> b) { \
        if constexpr (FITS) return {expression}; \
        else return {name<L / 2>(a.low, b.low), name<L / 2>(a.high, b.high)}; \
    }
#define TERNARY(MADE, name, FIRST_TAKEN, TAKEN, expression) \
    T MADE<L> name(FIRST_TAKEN<L> a, TAKEN<L> b, TAKEN<L> c) { \
        if constexpr (FITS) return {expression}; \
        else return {name<L / 2>(a.low, b.low, c.low), name<L / 2>(a.high, b.high, c.high)}; \
    }

BINARY(Floats, operator+, Floats, a.v + b.v)
BINARY(Floats, operator-, Floats, a.v - b.v)
BINARY(Floats, operator*, Floats, a.v * b.v)
BINARY(Floats, operator/, Floats, a.v / b.v)
UNARY(Floats, operator-, Floats, -a.v)
T Floats<L>& operator+=(Floats<L>& a, Floats<L> b) { return a = a + b; }
T Floats<L>& operator*=(Floats<L>& a, Floats<L> b) { return a = a * b; }
TERNARY(Floats, fma, Floats, Floats, fma_of(a.v, b.v, c.v))  // a * b + c, rounded once
UNARY(Floats, root, Floats, root_of(a.v))
UNARY(Floats, down, Floats, floor_of(a.v))

BINARY(Ints, operator>, Floats, a.v > b.v)
BINARY(Ints, operator>=, Floats, a.v >= b.v)
BINARY(Ints, operator==, Floats, a.v == b.v)
BINARY(Ints, operator!=, Floats, a.v != b.v)
BINARY(Ints, operator==, Ints, a.v == b.v)
BINARY(Ints, operator<, Ints, a.v < b.v)
BINARY(Ints, operator&, Ints, a.v & b.v)
BINARY(Ints, operator|, Ints, a.v | b.v)
BINARY(Ints, operator^, Ints, a.v ^ b.v)
BINARY(Ints, operator+, Ints, a.v + b.v)
BINARY(Ints, operator-, Ints, a.v - b.v)
TERNARY(Floats, select, Ints, Floats, a.v ? b.v : c.v)
TERNARY(Ints, select, Ints, Ints, a.v ? b.v : c.v)

// The larger and the smaller; of a number and none (NaN) none.
T Floats<L> largest(Floats<L> a, Floats<L> b) { return select<L>((a > b) | (a != a), a, b); }
T Floats<L> smallest(Floats<L> a, Floats<L> b) { return select<L>((b > a) | (a != a), a, b); }
// The same in one instruction where the first is a number: no number in the second stays none.
BINARY(Floats, above, Floats, above_of(a.v, b.v))
BINARY(Floats, below, Floats, below_of(a.v, b.v))

UNARY(Ints, whole, Floats, __builtin_convertvector(a.v, typename Ints<L>::Reg))
UNARY(Floats, real, Ints, __builtin_convertvector(a.v, typename Floats<L>::Reg))
UNARY(Ints, shifted_up, Ints, a.v << 23)  // between a number and its exponent
UNARY(Ints, shifted_down, Ints, a.v >> 23)
T Ints<L> bits(Floats<L> x) { Ints<L> o; std::memcpy(&o, &x, 4 * L); return o; }
T Floats<L> floats(Ints<L> x) { Floats<L> o; std::memcpy(&o, &x, 4 * L); return o; }
T Floats<L> magnitude(Floats<L> x) { return floats<L>(bits<L>(x) & all<L>((int32_t)0x7fffffff)); }
T int count(Ints<L> mask) {
    int32_t lanes[L], c = 0;
    store<L>(lanes, mask);
    for (int i = 0; i < L; i++) c -= lanes[i];
    return c;
}

// Entry x of a table of 16.
T Floats<L> look_up(const float* table, Ints<L> x) {
#if REGISTER_LANES == 16 && defined(__GNUC__) && !defined(__clang__)
    if constexpr (L == 16) return {__builtin_shuffle(load<16>(table).v, x.v)};
#endif
#if REGISTER_LANES == 8  // bit 3 of x is the sign by which two halves of the table are blended
    if constexpr (L == 8) {
        const __m256i entry = (__m256i)x.v;
        const __m256 low = _mm256_permutevar8x32_ps(load<8>(table).v, entry);
        const __m256 high = _mm256_permutevar8x32_ps(load<8>(table + 8).v, entry);
        return {_mm256_blendv_ps(low, high, (__m256)_mm256_slli_epi32(entry, 28))};
    }
#endif
    if constexpr (!FITS) {
        return {look_up<L / 2>(table, x.low), look_up<L / 2>(table, x.high)};
    } else {
        int32_t entry[L];
        float made[L];
        store<L>(entry, x);
        for (int i = 0; i < L; i++) made[i] = table[entry[i]];
        return load<L>(made);
    }
}

// The sum over lanes: the upper half is added to the lower until one is left.
T float total(Floats<L> x) {
    if constexpr (L == 1) {
        return x.v[0];
    } else {
        float s[L];
        store<L>(s, x);
        return total<L / 2>(load<L / 2>(s) + load<L / 2>(s + L / 2));
    }
}

// Rows of four become columns.
typedef float Four __attribute__((vector_size(16), may_alias, aligned(4)));
#if defined(__clang__)
#define PICKED(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICKED(a, b, i, j, k, l) __builtin_shuffle(a, b, (decltype(a == b)){i, j, k, l})
#endif
INLINE void turn(Four (&x)[4]) {
    const Four a = PICKED(x[0], x[1], 0, 4, 1, 5), b = PICKED(x[0], x[1], 2, 6, 3, 7);
    const Four c = PICKED(x[2], x[3], 0, 4, 1, 5), d = PICKED(x[2], x[3], 2, 6, 3, 7);
    x[0] = PICKED(a, c, 0, 1, 4, 5), x[1] = PICKED(a, c, 2, 3, 6, 7);
    x[2] = PICKED(b, d, 0, 1, 4, 5), x[3] = PICKED(b, d, 2, 3, 6, 7);
}
#undef PICKED

// `total` of many vectors of 16: the same sums in the same order, of four vectors at once.
INLINE void totals(const Floats<16>* vectors, int count, float* to) {
    int n = 0;
    for (; n + 4 <= count; n += 4) {
        Four x[4];
        for (int i = 0; i < 4; i++) {
            const Four* quarter = (const Four*)(vectors + n + i);
            x[i] = (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
        }
        turn(x);
        const Four made = (x[0] + x[2]) + (x[1] + x[3]);
        *(Four*)(to + n) = made;
    }
    for (; n < count; n++) to[n] = total<16>(vectors[n]);
}

// `count` vectors of L as L rows [L][stride], and back; the stride is a multiple of four and not below the count.
T void to_rows(const Floats<L>* vectors, int count, float* rows, int stride) {
    if constexpr (L == 1) std::memcpy(rows, vectors, sizeof(float) * count);
    else for (int n = 0; n < count; n += 4)
        for (int l = 0; l < L; l += 4) {
            Four x[4] = {};
            for (int i = 0; i < 4 && n + i < count; i++) x[i] = ((const Four*)(vectors + n + i))[l / 4];
            turn(x);
            for (int i = 0; i < 4; i++) *(Four*)(rows + (l + i) * stride + n) = x[i];
        }
}
T void from_rows(const float* rows, int stride, Floats<L>* vectors, int count) {
    if constexpr (L == 1) std::memcpy(vectors, rows, sizeof(float) * count);
    else for (int n = 0; n < count; n += 4)
        for (int l = 0; l < L; l += 4) {
            Four x[4];
            for (int i = 0; i < 4; i++) x[i] = *(const Four*)(rows + (l + i) * stride + n);
            turn(x);
            for (int i = 0; i < 4 && n + i < count; i++) ((Four*)(vectors + n + i))[l / 4] = x[i];
        }
}

// exp(x) for x up to 88, relative error 2e-7 near 0 and 1e-7 |x| far from it. Below -87 it is exp(-87), so that nothing
// downstream is denormal for its sake. x = n ln 2 + f ln 2 with n whole: adding 1.5 · 2^23 rounds to n and leaves it
// in the low bits, from where it is added to the exponent of 2^f, a minimax polynomial on [-1/2, 1/2].
T Floats<L> exponential(Floats<L> x) {
    const Floats<L> magic = all<L>(12582912.0f), to_two = all<L>(1.44269504f);
    x = above<L>(all<L>(-87.0f), x);
    Floats<L> moved = fma<L>(x, to_two, magic), f = fma<L>(x, to_two, magic - moved);
    Floats<L> p = all<L>(1.326472731e-3f);
    p = fma<L>(p, f, all<L>(9.671512991e-3f));
    p = fma<L>(p, f, all<L>(5.550733581e-2f));
    p = fma<L>(p, f, all<L>(2.402224243e-1f));
    p = fma<L>(p, f, all<L>(6.931470037e-1f));
    p = fma<L>(p, f, all<L>(1.0f));
    return floats<L>(bits<L>(p) + shifted_up<L>(bits<L>(moved)));
}

// log(x) of a normal positive number, absolute error 1e-7 around 1 and relative beyond.
T Floats<L> logarithm(Floats<L> x) {
    Ints<L> b = bits<L>(x), e = shifted_down<L>(b - all<L>((int32_t)0x3f3504f3));
    b = b - shifted_up<L>(e);  // what is left lies between sqrt(1/2) and sqrt(2)
    Floats<L> m = floats<L>(b), f = (m - all<L>(1.0f)) / (m + all<L>(1.0f)), s = f * f;
    Floats<L> p = all<L>(2.0f / 9);
    p = fma<L>(p, s, all<L>(2.0f / 7));
    p = fma<L>(p, s, all<L>(2.0f / 5));
    p = fma<L>(p, s, all<L>(2.0f / 3));
    p = fma<L>(p, s, all<L>(2.0f));
    return fma<L>(real<L>(e), all<L>(0.69314718f), p * f);
}

// sin(x), or cos(x) with `quarter` 1: absolute error 2e-7 for |x| up to some thousands, no number beyond 100,000, where
// nothing would be left of it. Multiples of pi/2 are taken off in three parts; the polynomials are the Cephes library's.
T Floats<L> sine(Floats<L> x, int quarter) {
    Floats<L> k = down<L>(fma<L>(x, all<L>(0.636619772f), all<L>(0.5f)));
    Floats<L> f = fma<L>(k, all<L>(-1.5703125f), x);
    f = fma<L>(k, all<L>(-4.837512969970703125e-4f), f);
    f = fma<L>(k, all<L>(-7.54978995489188e-8f), f);
    Floats<L> s = f * f;
    Floats<L> p = fma<L>(s, all<L>(-1.9515295891e-4f), all<L>(8.3321608736e-3f));
    p = fma<L>(fma<L>(p, s, all<L>(-1.6666654611e-1f)) * s, f, f);
    Floats<L> q = fma<L>(s, all<L>(2.443315711809948e-5f), all<L>(-1.388731625493765e-3f));
    q = fma<L>(q, s, all<L>(4.166664568298827e-2f));
    q = fma<L>(q * s, s, fma<L>(s, all<L>(-0.5f), all<L>(1.0f)));
    Ints<L> turn = whole<L>(k) + all<L>((int32_t)quarter), one = all<L>((int32_t)1), two = all<L>((int32_t)2);
    Floats<L> o = select<L>((turn & one) == one, q, p);
    o = select<L>((turn & two) == two, -o, o);
    return select<L>(all<L>(1e5f) >= magnitude<L>(x), o, all<L>(__builtin_nanf("")));
}

// GELU and its slope at x, from erf with an absolute error of 1.5e-7 (Abramowitz and Stegun, 7.1.26).
T void gelu(Floats<L> x, Floats<L>& value, Floats<L>& slope) {
    Floats<L> t = all<L>(1.0f) / fma<L>(magnitude<L>(x), all<L>(0.3275911f * 0.70710678f), all<L>(1.0f));
    Floats<L> e = exponential<L>(x * x * all<L>(-0.5f));
    Floats<L> p = all<L>(1.061405429f);
    p = fma<L>(p, t, all<L>(-1.453152027f));
    p = fma<L>(p, t, all<L>(1.421413741f));
    p = fma<L>(p, t, all<L>(-0.284496736f));
    p = fma<L>(p, t, all<L>(0.254829592f));
    Floats<L> tail = all<L>(0.5f) * (p * t) * e;
    Floats<L> phi = select<L>(x > all<L>(0.0f), all<L>(1.0f) - tail, tail);
    value = x * phi;
    slope = fma<L>(x * all<L>(0.39894228f), e, phi);
}

#undef T
#undef FITS
#undef UNARY
#undef BINARY
#undef TERNARY
