// Lanes as entries of GCC's and Clang's vector types: AVX-512, AVX2, NEON, or none of them.
//
// The three operations that those types lack (fused multiply-add, square root, floor) are an instruction of each kind of
// CPU, and elsewhere the C library's, lane by lane, with the same result. The width of a register only says how many
// instructions a vector takes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

#define INLINE_MEMBER __attribute__((always_inline)) inline
#define INLINE static INLINE_MEMBER
// A function with registers of its own: inlined into a long one, its constants would be spilled.
#define APART __attribute__((noinline))
// Loops over entries that are few; ALL of them are written out.
#define EACH_FROM(first, i, count) for (int i = first; i < (count); i++)
#define EACH(i, count) EACH_FROM(0, i, count)
#define ALL_FROM(first, i, count) _Pragma("GCC unroll 16") EACH_FROM(first, i, count)
#define ALL(i, count) ALL_FROM(0, i, count)
// What is done for each lane by itself, on arrays of 16.
template <class E> using Each = E[16];
#define EACH_LANE(i) for (int i = 0; i < 16; i++)
INLINE int lane_number(int i) { return i; }
#define CONSTANT static constexpr
// What a team's threads share among them, a thread alone does.
#define EACH_SHARED(i, count) EACH(i, count)
INLINE void meet() {}
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

template <int L> using InMemory = Floats<L>;
INLINE float magnitude(float x) { return __builtin_fabsf(x); }
INLINE float floor_of(float x) { return __builtin_floorf(x); }
INLINE float float_of(int32_t bits) { float x; std::memcpy(&x, &bits, 4); return x; }
INLINE double floor_of(double x) { return __builtin_floor(x); }
INLINE double ceil_of(double x) { return __builtin_ceil(x); }

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

INLINE Ints<16> lanes_of(const Each<int32_t>& numbers) { return load<16>(numbers); }
INLINE Floats<16> lanes_of(const Each<float>& numbers) { return load<16>(numbers); }
T Ints<L> lane_numbers() {
    int32_t lane[L];
    for (int i = 0; i < L; i++) lane[i] = i;
    return load<L>(lane);
}

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

// The same in one instruction where the first is a number: no number in the second stays none.
BINARY(Floats, above, Floats, above_of(a.v, b.v))
BINARY(Floats, below, Floats, below_of(a.v, b.v))

UNARY(Ints, whole, Floats, __builtin_convertvector(a.v, typename Ints<L>::Reg))
UNARY(Floats, real, Ints, __builtin_convertvector(a.v, typename Floats<L>::Reg))
UNARY(Ints, shifted_up, Ints, a.v << 23)  // between a number and its exponent
UNARY(Ints, shifted_down, Ints, a.v >> 23)
T Ints<L> bits(Floats<L> x) { Ints<L> o; std::memcpy(&o, &x, 4 * L); return o; }
T Floats<L> floats(Ints<L> x) { Floats<L> o; std::memcpy(&o, &x, 4 * L); return o; }
// x 2^n, where the low bits of `exponent` are n: its result must be normal.
T Floats<L> scaled(Floats<L> x, Ints<L> exponent) { return floats<L>(bits<L>(x) + shifted_up<L>(exponent)); }
template <int L, class F> INLINE Floats<L> lane_by_lane(F function, Floats<L> a, Floats<L> b) {
    float x[L], y[L];
    store<L>(x, a), store<L>(y, b);
    for (int l = 0; l < L; l++) x[l] = function(x[l], y[l]);
    return load<L>(x);
}
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

// Tokens of a block of 16 problems, [position][16].
typedef int32_t Token;
constexpr int tokens_in(int length) { return length * 16; }
T Ints<L> read_tokens(const Token* block, int position) { return load<L>(block + position * 16); }
INLINE void write_tokens(Token* block, int position, Ints<16> tokens) { store<16>(block + position * 16, tokens); }

// Entries of a column of numbers as lanes, zeros after the last, and back; -0 becomes 0.
template <int COUNT> INLINE Floats<16> load_column(const float* first, int stride) {
    float lane[16] = {};
    for (int l = 0; l < COUNT; l++) lane[l] = first[l * stride];
    return load<16>(lane);
}
template <int COUNT> INLINE void store_column(float* first, int stride, Floats<16> x) {
    float lane[16];
    store<16>(lane, x);
    for (int l = 0; l < COUNT; l++) first[l * stride] = lane[l] + 0.0f;
}
// The largest of the first COUNT lanes, of numbers that are not below 0.
template <int COUNT> INLINE float highest_lane(Floats<16> x) {
    float lane[16], most = 0;
    store<16>(lane, x);
    for (int l = 0; l < COUNT; l++) most = lane[l] > most ? lane[l] : most;
    return most;
}
INLINE Floats<16> look_up_lane(const Floats<16>& table, Ints<16> x) { return look_up<16>((const float*)&table, x); }

// Sums for each of 16 tokens, [token][channel], channels in fours.
template <int C> struct Rows {
    Four entries[16][(C + 3) / 4];

    // Lane after lane, x[channel] is added where its token says.
    void add(const Token* token, const Floats<16>* x) {
        for (int c = 0; c < C; c += 4) {
            for (int l = 0; l < 16; l += 4) {
                Four rows[4] = {};
                for (int i = 0; i < 4 && c + i < C; i++) std::memcpy(&rows[i], (const float*)&x[c + i] + l, sizeof(Four));
                turn(rows);
                for (int i = 0; i < 4; i++) entries[token[l + i]][c / 4] += rows[i];
            }
        }
    }
    Floats<16> by_token(int channel) const {
        float lane[16];
        for (int v = 0; v < 16; v++) lane[v] = entries[v][channel / 4][channel % 4];
        return load<16>(lane);
    }
};
template <int N, int C> INLINE void clear_rows(Rows<C> (&rows)[N]) { std::memset(rows, 0, sizeof rows); }
template <int N, int C>
INLINE void add_rows(Rows<C> (&to)[N], const Token* block, int position, const Floats<16> (&x)[N][C]) {
    for (int n = 0; n < N; n++) to[n].add(block + (position + n) * 16, x[n]);
}

// Sums over lanes of all vectors of an array, and zeros in all of them.
template <class E, class Vectors, class Numbers> INLINE void total_all(const Vectors& vectors, Numbers& to) {
    totals((const E*)&vectors, sizeof vectors / sizeof(E), (float*)&to);
}
template <class E, class Vectors> INLINE void clear(Vectors& vectors) { std::memset(&vectors, 0, sizeof vectors); }

// A thread's own working memory, whose address is asked for once.
template <class E> INLINE E& own() {
    static thread_local E made;
    E* at = &made;
    asm volatile("" : "+r"(at));
    return *at;
}
#define LOCAL(Type, name) Type& name = own<Type>()
#define ROUTINE static
#define EACH_STAGE(first) constexpr int first = 0;
#undef FITS
#undef UNARY
#undef BINARY
#undef TERNARY
