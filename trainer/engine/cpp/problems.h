// The problems of trainer/data/problems.py, token for token: whole numbers, exact everywhere.
//
// Compiled for a task (model/tasks): NUMBERS of DIGITS in a BASE. The ANSWER is TIMES x + SIGN y, and + a third number
// w; or x again, backwards, or the sums of its digits so far.
//
// A block's problems are lanes, and no lane branches: a kind of problem is a row of a table, and what single problems
// are about is their base. Stages are loops over lanes, which the compiler makes vectors of.
#pragma once

#include <cstdint>

#include "lanes.h"

#ifndef BASE
#define BASE 10
#endif
#ifndef DIGITS
#define DIGITS 10
#endif
#ifndef NUMBERS
#define NUMBERS 2
#endif
#ifndef ANSWER
#define ANSWER 0
#endif
#ifndef TIMES
#define TIMES 1
#endif
#ifndef SIGN
#define SIGN 1
#endif
#ifndef ORDERED  // x is never below y
#define ORDERED 0
#endif

constexpr double power_of(int base, int exponent) { return exponent ? base * power_of(base, exponent - 1) : 1; }
constexpr int most_digits(int count) { return power_of(BASE, count + 1) > 1e5 ? count : most_digits(count + 1); }
constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr double least(double a, double b) { return a < b ? a : b; }

enum Answer { SUM, COPY, REVERSE, PREFIX };
constexpr int BEFORE_ANSWER = (NUMBERS > 2 ? 3 : 2) * DIGITS;  // columns: of x and y always
constexpr int ALL_DIGITS = BEFORE_ANSWER + DIGITS + 1, PER_BLOCK = 16, LOW = BASE / 2;  // two digits below LOW do not carry
constexpr int PART = least(most_digits(1), DIGITS), PARTS = (DIGITS + PART - 1) / PART;  // of a number: `digits_of`
// Of three numbers the third rides above the other two: on a its columns below HALF, on b the others.
constexpr double LIMIT = power_of(BASE, DIGITS), HALF = power_of(BASE, (DIGITS + 1) / 2);
constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull, STREAM = 0xD1B54A32D192ED03ull;

INLINE uint64_t mixed(uint64_t w) {  // SplitMix64's finaliser
    w = (w ^ (w >> 30)) * 0xBF58476D1CE4E5B9ull;
    w = (w ^ (w >> 27)) * 0x94D049BB133111EBull;
    return w ^ (w >> 31);
}

INLINE double fraction(uint64_t word, int low, int bits) {  // `bits` bits from bit `low` up, in [0, 1)
    return (double)(int64_t)((word >> low) & ((1ull << bits) - 1)) * (1.0 / (double)(1ull << bits));
}

// What two numbers are drawn by: floor(u limit) + more, by kind and columns n. A single problem's have n digits in base LOW.
enum Kind { ORDINARY, SINGLE, CHAIN, PLACE, BOUNDARY, KINDS };
struct Range {
    double a_limit, a_more, b_limit, b_more;
};
struct Ranges {
    Range of[KINDS * (DIGITS + 1)];
    constexpr Ranges() : of() {
        const double last = power_of(BASE, DIGITS) - 1;
        double ten = 1, five = 1, lowest = 0;  // lowest: of n digits; names of base ten
        for (int n = 0; n <= DIGITS; n++, lowest = ten, ten *= BASE, five *= LOW) {
            const Range its[KINDS] = {{ten, 0, ten, 0},
                                      {five, 0, five, 0},
                                      {0, ten - 1, least(least(ten, power_of(BASE, 3)), last), 1},
                                      {ten - lowest, lowest, 0, 0},
                                      {0, ten - 1, least(2.0 * BASE, last), 1}};
            for (int kind = 0; kind < KINDS; kind++) of[kind * (DIGITS + 1) + n] = its[kind];
        }
    }
};
CONSTANT Ranges RANGES;

struct Lesson {  // what a step asks for: trainer/data/problems.py, `sample`
    int64_t data_seed, step;
    double carry_mix, mixed_lengths;
    double single, chain, place;  // where kinds have shares of their own: of this kind and those before it
    int32_t digits, by_kind;
    double targeted;  // share of problems that are of these errors
    int64_t errors;
    const double *error_a, *error_b;
};

// What a seed's lesson tape leaves, in this order.
enum Asked {
    ASK_RAMP, ASK_CARRY_MIX, ASK_MIXED_LENGTHS, ASK_SINGLE, ASK_CHAIN, ASK_PLACE, ASK_DIGITS, ASK_BY_KIND, ASKED
};

template <class Ask> INLINE Lesson lesson_of(int64_t data_seed, int64_t step, const Ask& ask) {
    Lesson its = {};  // without errors
    its.data_seed = data_seed, its.step = step;
    its.carry_mix = ask(ASK_CARRY_MIX), its.mixed_lengths = ask(ASK_MIXED_LENGTHS);
    its.single = ask(ASK_SINGLE), its.chain = ask(ASK_CHAIN), its.place = ask(ASK_PLACE);
    its.digits = (int32_t)ask(ASK_DIGITS), its.by_kind = (int32_t)ask(ASK_BY_KIND);
    return its;
}

// Which of the seed's errors a problem with these words is instead (trainer/data/hard_examples.py), or -1.
INLINE int64_t error_of(const Lesson& l, uint64_t wa, uint64_t wb) {
    const uint64_t word = mixed(wa + wb);
    return fraction(word, 32, 32) < l.targeted ? (int64_t)floor_of(fraction(word, 0, 31) * l.errors) : -1;
}

// Whether x / count is below a share, all bits or none; `from`: what stands for 0, where x has a sign to spare.
struct Below {
    int32_t last, any;
    INLINE_MEMBER Below(double share, double count, double from) {
        const double up = ceil_of(share * count), many = !(share > 0) ? 0 : up < count ? up : count;
        any = many > 0 ? -1 : 0;
        last = any ? (int32_t)(many - 1 + from) : 0;
    }
    INLINE_MEMBER int32_t operator()(int32_t x) const { return any & -(int32_t)(x <= last); }
};

typedef Each<int32_t> Lanes;
typedef Each<uint64_t> Words;
typedef Ints<PER_BLOCK> Column;
typedef Floats<PER_BLOCK> Reals;

// A block's problems: random words, and what they say. Masks are all bits or none.
struct Drawn {
    Words wa, wb;
    Lanes row, single;  // of RANGES; whether numbers are in base LOW
    Lanes column, more_a, more_b, less;  // added to a and b at that column; taken from a's units
    Each<double> a, b, w;

    // Kinds and lengths.
    INLINE_MEMBER void choose(const Lesson& l, uint64_t counter) {
        const Below carry(l.carry_mix, 0x1p32, -0x1p31), upto_single(l.single, 0x1p32, -0x1p31);
        const Below upto_chain(l.chain, 0x1p32, -0x1p31), upto_place(l.place, 0x1p32, -0x1p31);
        const Below mixed_length(l.mixed_lengths, 0x1p30, 0);
        Words wk, we;
        Lanes which, low, e, f, g;
        EACH_LANE(i) {
            wk[i] = mixed(counter + (uint64_t)lane_number(i) * (4 * GOLDEN) + 3 * GOLDEN);
            we[i] = mixed(counter + (uint64_t)lane_number(i) * (4 * GOLDEN) + 4 * GOLDEN);
        }
        EACH_LANE(i) {
            which[i] = (int32_t)(wk[i] >> 32) ^ INT32_MIN, low[i] = (int32_t)wk[i];
            e[i] = (int32_t)we[i] & 0x1fffff, f[i] = (int32_t)(we[i] >> 21) & 0x1fffff;
            g[i] = (int32_t)(we[i] >> 42) & 0x1fffff;
        }
        EACH_LANE(i) {
            const int32_t carries = carry(which[i]);
            const int32_t later = 3 + upto_single(which[i]) + upto_chain(which[i]) + upto_place(which[i]);
            const int32_t kind = carries & (1 + (l.by_kind ? later : low[i] & 3));
            const int32_t shorter = mixed_length((int32_t)((uint32_t)low[i] >> 2));
            const int32_t n = carries | shorter ? 1 + (e[i] * l.digits >> 21) : l.digits;
            row[i] = kind * (DIGITS + 1) + n, column[i] = f[i] * n >> 21;
            single[i] = -(int32_t)(kind == SINGLE);
            more_a[i] = single[i] & (BASE - LOW);
            more_b[i] = kind == PLACE ? 1 + (g[i] * (BASE - 1) >> 21) : more_a[i];
            less[i] = kind == BOUNDARY ? g[i] * BASE >> 21 : 0;
        }
    }

    INLINE_MEMBER void numbers(uint64_t counter) {
        EACH_LANE(i) {
            wa[i] = mixed(counter + (uint64_t)lane_number(i) * (4 * GOLDEN) + GOLDEN);
            wb[i] = mixed(counter + (uint64_t)lane_number(i) * (4 * GOLDEN) + 2 * GOLDEN);
        }
        EACH_LANE(i) {
            const Range& range = RANGES.of[row[i]];
            a[i] = floor_of(fraction(wa[i], 11, 53) * range.a_limit) + range.a_more;
            b[i] = floor_of(fraction(wb[i], 11, 53) * range.b_limit) + range.b_more;
        }
        // A third number is as long as the two, and of no kind.
        if constexpr (NUMBERS > 2) EACH_LANE(i)
            w[i] = floor_of(fraction(mixed(wa[i] - wb[i]), 11, 53) * RANGES.of[row[i] % (DIGITS + 1)].a_limit);
    }

    // One of the seed's errors instead, for a share of the problems.
    INLINE_MEMBER void target(const Lesson& l) {
        EACH_LANE(i) {
            const int64_t n = error_of(l, wa[i], wb[i]);
            if (n < 0) continue;
            a[i] = l.error_a[n], b[i] = l.error_b[n];
            if constexpr (NUMBERS > 2) {
                const double on_a = floor_of((a[i] + 0.5) * (1 / LIMIT)), on_b = floor_of((b[i] + 0.5) * (1 / LIMIT));
                a[i] -= on_a * LIMIT, b[i] -= on_b * LIMIT, w[i] = on_a + on_b * HALF;
            }
            single[i] = more_a[i] = more_b[i] = less[i] = 0;
        }
    }

    // What kinds do to digits beside the numbers that they draw.
    INLINE_MEMBER void alter(Column* x, Column* y) const {
        const Column where = lanes_of(column);
        const Column to_a = lanes_of(more_a), to_b = lanes_of(more_b);
        EACH(c, DIGITS) {
            const Column here = where == all<PER_BLOCK>(c);
            x[c] = x[c] + (here & to_a), y[c] = y[c] + (here & to_b);
        }
        x[0] = x[0] - lanes_of(less);
    }
};

// COUNT digits of whole numbers below base^COUNT, at most 10^5, units first; scale = base^(1 - COUNT). y is a digit and what
// is below it, as a fraction that ends half a unit from the next: at the last digit roundings have grown to a fiftieth.
// (All were tried.)
template <int COUNT> INLINE void digits_of(Reals number, Reals base, Reals scale, Column* to) {
    Reals y = (number + all<PER_BLOCK>(0.5f)) * scale;
    EACH(i, COUNT) {
        const int n = COUNT - 1 - i;
        to[n] = whole(y);
        y = (y - real(to[n])) * base;
    }
}

// The digits of a block's numbers, part by part.
template <int FIRST_DIGIT> INLINE void columns_of(Each<double>& number, const Lanes& single, Column* to) {
    constexpr int COUNT = least(PART, DIGITS - FIRST_DIGIT);
    constexpr bool LAST = FIRST_DIGIT + COUNT == DIGITS;
    constexpr double WHOLE = power_of(BASE, COUNT), LOW_WHOLE = power_of(LOW, COUNT);
    Each<float> its;
    EACH_LANE(i) {
        const double above = LAST ? 0 : floor_of((number[i] + 0.5) * (single[i] ? 1 / LOW_WHOLE : 1 / WHOLE));
        its[i] = (float)(number[i] - above * (single[i] ? LOW_WHOLE : WHOLE)), number[i] = above;
    }
    const Column mask = lanes_of(single);
    const Reals bases = select(mask, all<PER_BLOCK>((float)LOW), all<PER_BLOCK>((float)BASE));
    const Reals scales = select(mask, all<PER_BLOCK>((float)(LOW / LOW_WHOLE)), all<PER_BLOCK>((float)(BASE / WHOLE)));
    digits_of<COUNT>(lanes_of(its), bases, scales, to + FIRST_DIGIT);
    if constexpr (!LAST) columns_of<FIRST_DIGIT + COUNT>(number, single, to);
}

// The numbers that are asked, of those that were drawn (`Subtraction.asked`): their sum, and the second; the larger first.
INLINE void ask(Column* x, Column* y) {
    if constexpr (SIGN > 0) return;
    const Column none = all<PER_BLOCK>(0);
    Column over = none, under = none;  // -1 where a column carries, or borrows
    EACH(c, DIGITS) {
        const Column sum = x[c] + y[c] - over;
        over = all<PER_BLOCK>(BASE - 1) < sum;
        x[c] = sum - (over & all<PER_BLOCK>(BASE));
    }
    if constexpr (!ORDERED) return;
    EACH(c, DIGITS) under = x[c] - y[c] + under < none;
    EACH(c, DIGITS) {
        const Column first = select(under, y[c], x[c]);
        y[c] = select(under, x[c], y[c]), x[c] = first;
    }
}

// The answer's columns. A column is below 0 once at most, and at most TIMES times above what a digit can be; with a
// third number once more.
INLINE void answer(const Column* x, const Column* y, const Column* w, Column* z) {
    const Column none = all<PER_BLOCK>(0);
    Column over = none;  // less what is carried; of digits the sum so far
    if constexpr (ANSWER != SUM) {
        EACH(c, DIGITS) {
            Column digit = ANSWER == REVERSE ? x[DIGITS - 1 - c] : x[c];
            if constexpr (ANSWER == PREFIX) {
                digit = digit + over;
                digit = over = digit - (all<PER_BLOCK>(BASE - 1) < digit & all<PER_BLOCK>(BASE));
            }
            z[c] = digit;
        }
        return;
    }
    EACH(c, DIGITS) {
        Column sum = SIGN > 0 ? x[c] + y[c] - over : x[c] - y[c] - over;
        EACH(n, TIMES - 1) sum = sum + x[c];
        if constexpr (NUMBERS > 2) sum = sum + w[c];
        over = none;
        if constexpr (SIGN < 0) {
            const Column is_under = sum < none;
            sum = sum + (is_under & all<PER_BLOCK>(BASE)), over = over - is_under;
        }
        EACH(n, (SIGN > 0 ? TIMES : TIMES - 1) + (NUMBERS > 2)) {
            const Column is_over = all<PER_BLOCK>(BASE - 1) < sum;
            sum = sum - (is_over & all<PER_BLOCK>(BASE)), over = over + is_over;
        }
        z[c] = sum;
    }
    z[DIGITS] = none - over;
    if constexpr (SIGN < 0) z[DIGITS] = z[DIGITS] + (z[DIGITS] < none & all<PER_BLOCK>(BASE));
}

// Where a sequence's tokens come from: a column (x's digits, y's, then those of z, units first), or, below 0,
// the token -1 - n itself. For a thread they are known when this is compiled, so that columns stay in registers.
#if !THREADS
struct Sequence {
    int32_t length;
    const int32_t* source;
    int from(int t) const { return source[t]; }
};
#else
struct Sequence {
    static constexpr int length = LENGTH;
    static INLINE_MEMBER int from(int t) {
        constexpr int source[] = {SOURCE};
        return source[t];
    }
};
#endif

// Of a task of rows (model/tasks/rows.py): the tokens [rows][length] of all its problems, and the numbers of those that
// are trained on. Without tokens the task's numbers are drawn.
struct RowTable {
    const int32_t* tokens;
    const int64_t* trained;
    int32_t count;  // of those that are trained on
};

// The key of a step's random words.
INLINE uint64_t key_of(const Lesson& l) {
    return mixed(mixed((uint64_t)l.data_seed * GOLDEN + STREAM) + (uint64_t)l.step * GOLDEN);
}

// A step's problems, block by block.
struct Problems {
    const Lesson& lesson;
    const Sequence& sequence;
    uint64_t key;
    bool varied;
    Drawn drawn;

    INLINE_MEMBER Problems(const Lesson& l, const Sequence& s)
        : lesson(l), sequence(s), key(key_of(l)),
          varied(l.carry_mix > 0 || l.mixed_lengths > 0), drawn() {
        EACH_LANE(i) drawn.row[i] = l.digits;
    }

    // The tokens of the block whose first problem's number is this.
    INLINE_MEMBER void block(int first, Token* tokens) {
        const Lesson& l = lesson;
        const uint64_t counter = key + (uint64_t)first * (4 * GOLDEN);
        if (varied) drawn.choose(l, counter);
        drawn.numbers(counter);
        if (l.targeted > 0 && l.errors > 0) drawn.target(l);
        Column column[ALL_DIGITS];
        Column *const x = column, *const y = column + DIGITS, *const w = y + DIGITS, *const z = column + BEFORE_ANSWER;
        columns_of<0>(drawn.a, drawn.single, x), columns_of<0>(drawn.b, drawn.single, y);
        if (varied) drawn.alter(x, y);
        if constexpr (NUMBERS > 2) columns_of<0>(drawn.w, Lanes{}, w);
        ask(x, y), answer(x, y, w, z);
        EACH(t, sequence.length) {
            const int from = sequence.from(t);
            write_tokens(tokens, t, from < 0 ? all<PER_BLOCK>((int32_t)(-1 - from)) : column[from < 0 ? 0 : from]);
        }
    }
};

#if !THREADS
// The row of a step's problem: all that are trained on in order, where a batch has them all, or one of them by chance.
inline int64_t row_of(const Lesson& l, const RowTable& rows, uint64_t key, int64_t problem, int batch) {
    if (l.targeted > 0 && l.errors > 0) {
        const uint64_t counter = key + (uint64_t)problem * (4 * GOLDEN);
        const int64_t n = error_of(l, mixed(counter + GOLDEN), mixed(counter + 2 * GOLDEN));
        if (n >= 0) return (int64_t)l.error_a[n];
    }
    if (batch == rows.count) return rows.trained[problem % batch];
    return rows.trained[(int64_t)floor_of(fraction(mixed(key + (uint64_t)(problem + 1) * GOLDEN), 11, 53) * rows.count)];
}

// The tokens [blocks][length][16] of a step's problems; the lanes after the last problem get its like.
inline void problems(const Lesson& l, const Sequence& sequence, const RowTable& rows, int batch, int32_t* tokens) {
    if (rows.tokens) {
        const uint64_t key = key_of(l);
        for (int first = 0; first < batch; first += PER_BLOCK, tokens += tokens_in(sequence.length))
            for (int lane = 0; lane < PER_BLOCK; lane++) {
                const int32_t* row = rows.tokens + row_of(l, rows, key, first + lane, batch) * sequence.length;
                EACH(t, sequence.length) tokens[t * PER_BLOCK + lane] = row[t];
            }
        return;
    }
    Problems its(l, sequence);
    for (int first = 0; first < batch; first += PER_BLOCK, tokens += tokens_in(sequence.length)) its.block(first, tokens);
}
#endif
