// Lanes as threads of a team: a vector of L is a number that each thread has of it.
#pragma once

#include "team.h"

#define REGISTER_LANES 16
// Loops over entries that are few, written out: what they index stays in registers.
#define EACH_FROM(first, i, count) _Pragma("unroll") for (int i = first; i < (count); i++)
#define EACH(i, count) EACH_FROM(0, i, count)
#define ALL_FROM(first, i, count) EACH_FROM(first, i, count)
#define ALL(i, count) EACH(i, count)
template <class E> using Each = E[1];
#define EACH_LANE(i) EACH(i, 1)
INLINE int lane_number(int) { return lane_of(); }
#define EACH_SHARED(i, count) _Pragma("unroll 1") for (int i = lane_of(); i < (count); i += 16)
#define LOCAL(Type, name) Type name
#define ROUTINE INLINE
#define EACH_STAGE(first) _Pragma("unroll 1") for (int first = 0; first < ANSWERS; first++)

template <int L> struct Floats {
    float v;
};
template <int L> struct Ints {  // masks too: all bits or none
    int32_t v;
};
template <int L> struct InMemory {
    float lane[L];
    INLINE_MEMBER operator Floats<L>() const { return {lane[lane_of()]}; }
    INLINE_MEMBER void operator=(Floats<L> x) { lane[lane_of()] = x.v; }
    INLINE_MEMBER void operator+=(Floats<L> x) { lane[lane_of()] += x.v; }
};

T Floats<L> all(float x) { return {x}; }
T Ints<L> all(int32_t x) { return {x}; }
T Floats<L> load(const float* p) { return {p[lane_of()]}; }
T Ints<L> load(const int32_t* p) { return {p[lane_of()]}; }
T void store(float* p, Floats<L> x) { p[lane_of()] = x.v; }
T void store(int32_t* p, Ints<L> x) { p[lane_of()] = x.v; }
INLINE Ints<16> lanes_of(const Each<int32_t>& numbers) { return {numbers[0]}; }
INLINE Floats<16> lanes_of(const Each<float>& numbers) { return {numbers[0]}; }
T Ints<L> lane_numbers() { return {lane_of()}; }

#define UNARY(MADE, name, TAKEN, expression) T MADE<L> name(TAKEN<L> a) { return {expression}; }
#define BINARY(MADE, name, TAKEN, expression) T MADE<L> name(TAKEN<L> a, TAKEN<L> b) { return {expression}; }
#define TERNARY(MADE, name, FIRST_TAKEN, TAKEN, expression) \
    T MADE<L> name(FIRST_TAKEN<L> a, TAKEN<L> b, TAKEN<L> c) { return {expression}; }
BINARY(Floats, operator+, Floats, a.v + b.v)
BINARY(Floats, operator-, Floats, a.v - b.v)
BINARY(Floats, operator*, Floats, a.v * b.v)
BINARY(Floats, operator/, Floats, a.v / b.v)
UNARY(Floats, operator-, Floats, -a.v)
TERNARY(Floats, fma, Floats, Floats, fma_of(a.v, b.v, c.v))
UNARY(Floats, root, Floats, root_of(a.v))
UNARY(Floats, down, Floats, floor_of(a.v))
BINARY(Ints, operator>, Floats, -(int32_t)(a.v > b.v))
BINARY(Ints, operator>=, Floats, -(int32_t)(a.v >= b.v))
BINARY(Ints, operator==, Floats, -(int32_t)(a.v == b.v))
BINARY(Ints, operator!=, Floats, -(int32_t)(a.v != b.v))
BINARY(Ints, operator==, Ints, -(int32_t)(a.v == b.v))
BINARY(Ints, operator<, Ints, -(int32_t)(a.v < b.v))
BINARY(Ints, operator&, Ints, a.v & b.v)
BINARY(Ints, operator|, Ints, a.v | b.v)
BINARY(Ints, operator^, Ints, a.v ^ b.v)
BINARY(Ints, operator+, Ints, (int32_t)((uint32_t)a.v + (uint32_t)b.v))
BINARY(Ints, operator-, Ints, (int32_t)((uint32_t)a.v - (uint32_t)b.v))
TERNARY(Floats, select, Ints, Floats, a.v ? b.v : c.v)
TERNARY(Ints, select, Ints, Ints, a.v ? b.v : c.v)
BINARY(Floats, above, Floats, a.v > b.v ? a.v : b.v)
BINARY(Floats, below, Floats, a.v < b.v ? a.v : b.v)
UNARY(Ints, whole, Floats, (int32_t)a.v)
UNARY(Floats, real, Ints, (float)a.v)
UNARY(Ints, shifted_up, Ints, (int32_t)((uint32_t)a.v << 23))
UNARY(Ints, shifted_down, Ints, a.v >> 23)
UNARY(Ints, bits, Floats, bits_of(a.v))
UNARY(Floats, floats, Ints, float_of(a.v))
#undef UNARY
#undef BINARY
#undef TERNARY
// x 2^n, where the low bits of `exponent` are n. A product, so that no number (NaN) stays none: of its bits a GPU and a CPU
// have different ones.
T Floats<L> scaled(Floats<L> x, Ints<L> exponent) {
    return {x.v * float_of((int32_t)(((uint32_t)exponent.v << 23) + 0x3f800000u))};
}
template <int L, class F> INLINE Floats<L> lane_by_lane(F function, Floats<L> a, Floats<L> b) {
    return {function(a.v, b.v)};
}
T Floats<L> look_up(const float* table, Ints<L> x) { return {table[x.v]}; }

// The sum over lanes: the upper half is added to the lower until one is left. Every thread has it.
T float total(Floats<L> x) {
    EACH(n, 4) x.v += across(x.v, 8 >> n);
    return x.v;
}
INLINE int count(Ints<16> mask) { return (int)total<16>(Floats<16>{mask.v ? 1.0f : 0.0f}); }

// `total` of 16 vectors at once, the same sums in the same order: each thread has that of the vector of its number.
template <int APART_BY> INLINE void halve(float (&x)[16]) {
    const bool is_upper = lane_of() & APART_BY;
    EACH(i, APART_BY) {
        const float low = x[i], high = x[i + APART_BY];
        x[i] = (is_upper ? high : low) + across(is_upper ? low : high, APART_BY);
    }
}
INLINE float total_by_lane(const Floats<16>* vectors) {
    float x[16];
    EACH(i, 16) x[i] = vectors[i].v;
    halve<8>(x), halve<4>(x), halve<2>(x), halve<1>(x);
    return x[0];
}

// Sums over lanes of all vectors of an array, in registers or in memory, and zeros in all of them.
template <class E, class Vectors, class Numbers> INLINE void total_all(const Vectors& vectors, Numbers& to) {
    constexpr int count = sizeof vectors / sizeof(E), parts = (count + 15) / 16;
    const E* each = (const E*)&vectors;
    const auto total_part = [&](int first) {
        Floats<16> x[16];
        EACH(i, 16) x[i] = first + i < count ? (Floats<16>)each[first + i < count ? first + i : 0] : all<16>(0.0f);
        const float sum = total_by_lane(x);
        if (first + lane_of() < count) ((float*)&to)[first + lane_of()] = sum;
    };
    if constexpr (sizeof(E) == sizeof(float)) EACH(n, parts) total_part(n * 16);
    else _Pragma("unroll 1") for (int n = 0; n < parts; n++) total_part(n * 16);
}
template <class E, class Vectors> INLINE void clear(Vectors& vectors) {
    constexpr int count = sizeof vectors / sizeof(E);
    if constexpr (sizeof(E) == sizeof(float)) EACH(n, count) ((E*)&vectors)[n] = all<16>(0.0f);
    else _Pragma("unroll 1") for (int n = 0; n < count; n++) ((E*)&vectors)[n] = all<16>(0.0f);
}

// Tokens of a block of 16 problems, two a byte: [pair of positions][16].
typedef uint8_t Token;
INLINE constexpr int tokens_in(int length) { return (length + 1) / 2 * 16; }
T Ints<L> read_tokens(const Token* block, int position) {
    return {block[position / 2 * 16 + lane_of()] >> position % 2 * 4 & 15};
}
INLINE void write_tokens(Token* block, int position, Ints<16> tokens) {
    Token& pair = block[position / 2 * 16 + lane_of()];
    pair = (Token)(position % 2 ? pair | tokens.v << 4 : tokens.v);
}

// Entries of a column of numbers as lanes, zeros after the last, and back; -0 becomes 0.
template <int COUNT> INLINE Floats<16> load_column(const float* first, int stride) {
    return {lane_of() < COUNT ? first[lane_of() * stride] : 0.0f};
}
template <int COUNT> INLINE void store_column(float* first, int stride, Floats<16> x) {
    if (lane_of() < COUNT) first[lane_of() * stride] = x.v + 0.0f;
}
// The largest of the first COUNT lanes, of numbers that are not below 0.
template <int COUNT> INLINE float highest_lane(Floats<16> x) {
    float most = lane_of() < COUNT && x.v > 0 ? x.v : 0.0f;
    EACH(n, 4) {
        const float other = across(most, 8 >> n);
        most = other > most ? other : most;
    }
    return most;
}
INLINE Floats<16> look_up_lane(const InMemory<16>& table, Ints<16> x) { return {table.lane[x.v]}; }

// Sums for each of 16 tokens, [token][channel].
template <int C> struct Rows {
    float entries[16][C];
    INLINE_MEMBER Floats<16> by_token(int channel) const { return {entries[lane_of()][channel]}; }
};
template <int N, int C> INLINE void clear_rows(Rows<C> (&rows)[N]) {
    EACH_SHARED(n, (int)sizeof rows / 4) ((float*)rows)[n] = 0;
}
// Lane after lane, x[channel] is added where its token says; a thread adds for a channel of a row.
template <int N, int C>
INLINE void add_rows(Rows<C> (&to)[N], const Token* block, int position, const InMemory<16> (&x)[N][C]) {
    meet();
    EACH_SHARED(n, N * C) {
        const Token* tokens = block + (position + n / C) / 2 * 16;
        const int shift = (position + n / C) % 2 * 4;
        for (int l = 0; l < 16; l++) to[n / C].entries[tokens[l] >> shift & 15][n % C] += x[n / C][n % C].lane[l];
    }
    meet();
}
