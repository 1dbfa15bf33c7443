// A net's problems by its tape, forwards and backwards: 16 at a time, a problem a lane.
//
// Unlike tapes of seeds (tape.h), this one has operations on rows of numbers: products of a row and a matrix, softmax, norms,
// and rows of a table that a token picks. Registers are the wide tensors' numbers, tokens, constants, then what operations make.
// An operation that is done for many rows is one step. Every sum has one order, whatever the tiles in which it is added.
#pragma once

#include "kernel.h"
#include "stage_loss.h"
#include "tape.h"

// Operations beside those of operations.h, on the n numbers x that an item reads.
enum Rowwise {
    TANH = OPERATIONS, GELU, RELU,
    SUM,
    SOFTMAX,
    NORM, RMS_NORM,  // the last number is the root's inverse
    LOOKUP, LOOKUP_WIDE,  // the row of a table that x says
    AFFINE, AFFINE_WIDE,  // starts + x · a table
};

// `count` items, each of which reads `reads` registers and makes `width` numbers, one item after the other. A table has a row
// of `stride` registers for each number read, or for each token; WIDE: of the wide tensors alone. `rows`: of a table.
struct Step {
    int32_t kind, count, reads, width, read, out, table, rows, stride, starts;  // the last: -1 for none
};

#include "recording.h"

struct Wide {
    float number[SIZE];
};
struct Far {};  // sums lie in a room
typedef Far Sums;

// Numbers of a row that are added at once: as many as there are registers for.
constexpr int TILE = REGISTER_LANES == 16 ? 8 : 4;

// tanh(x), relative error 3e-7: Cephes' polynomial where 1 - 2 / (exp(2x) + 1) would lose digits.
INLINE V hyperbolic(V x) {
    const V size = magnitude<LANES>(x), s = x * x;
    V p = one(-5.70498872745e-3f);
    p = fma<LANES>(p, s, one(2.06390887954e-2f));
    p = fma<LANES>(p, s, one(-5.37397155531e-2f));
    p = fma<LANES>(p, s, one(1.33314422036e-1f));
    p = fma<LANES>(p, s, one(-3.33332819422e-1f));
    const V near = fma<LANES>(p * s, x, x);
    const V limited = below<LANES>(one(20.0f), size);
    const V far = one(1.0f) - one(2.0f) / (exponential<LANES>(limited + limited) + one(1.0f));
    return select<LANES>(size >= one(0.625f), select<LANES>(x >= one(0.0f), far, -far), near);
}

template <bool WIDE> INLINE V entry(const V* value, const float* wide, int n) {
    if constexpr (WIDE) return one(wide[n]);
    else return value[n];
}

// N numbers of a row: starts + x · table.
template <bool WIDE, int N>
INLINE void affine(const Step& s, const int32_t* x, const int32_t* table, const int32_t* starts, const V* value,
                   const float* wide, V* to) {
    V sum[N];
    ALL(n, N) sum[n] = starts ? value[starts[n]] : one(0.0f);
    EACH(k, s.reads) {
        const V its = value[x[k]];
        ALL(n, N) sum[n] = fma<LANES>(its, entry<WIDE>(value, wide, table[k * s.stride + n]), sum[n]);
    }
    ALL(n, N) to[n] = sum[n];
}

template <bool WIDE> INLINE void affine_row(const Step& s, const int32_t* x, const V* value, const float* wide, V* to) {
    const int32_t *table = TABLE + s.table, *starts = s.starts < 0 ? nullptr : TABLE + s.starts;
    const auto from = [&](int n) { return starts ? starts + n : nullptr; };
    int n = 0;
    for (; n + TILE <= s.width; n += TILE) affine<WIDE, TILE>(s, x, table + n, from(n), value, wide, to + n);
    for (; n + 4 <= s.width; n += 4) affine<WIDE, 4>(s, x, table + n, from(n), value, wide, to + n);
    for (; n < s.width; n++) affine<WIDE, 1>(s, x, table + n, from(n), value, wide, to + n);
}

// The slopes of N numbers that a row of a product reads.
template <bool WIDE, int N>
INLINE void pull_row(const Step& s, const int32_t* x, const int32_t* table, const V* value, const float* wide, const V* d,
                     V* slope) {
    V sum[N];
    ALL(k, N) sum[k] = one(0.0f);
    EACH(n, s.width) {
        const V its = d[n];
        ALL(k, N) sum[k] = fma<LANES>(its, entry<WIDE>(value, wide, table[k * s.stride + n]), sum[k]);
    }
    ALL(k, N) slope[x[k]] += sum[k];
}

// The slopes of K x N entries of a product's table: over its rows.
template <int K, int N>
INLINE void pull_table(const Step& s, const int32_t* x, const int32_t* table, const V* value, const V* d, V* slope) {
    V sum[K][N];
    ALL(k, K) ALL(n, N) sum[k][n] = one(0.0f);
    for (int m = 0; m < s.count; m++, x += s.reads, d += s.width) {
        ALL(k, K) {
            const V its = value[x[k]];
            ALL(n, N) sum[k][n] = fma<LANES>(its, d[n], sum[k][n]);
        }
    }
    ALL(k, K) ALL(n, N) slope[table[k * s.stride + n]] += sum[k][n];
}

template <bool WIDE> INLINE void pull_product(const Step& s, const V* value, const float* wide, const V* d, V* slope) {
    const int32_t *x = READ + s.read, *table = TABLE + s.table;
    EACH(m, s.count) {
        const int32_t* its = x + m * s.reads;
        int k = 0;
        for (; k + 4 <= s.reads; k += 4)
            pull_row<WIDE, 4>(s, its + k, table + k * s.stride, value, wide, d + m * s.width, slope);
        for (; k < s.reads; k++)
            pull_row<WIDE, 1>(s, its + k, table + k * s.stride, value, wide, d + m * s.width, slope);
    }
    constexpr int K = TILE / 2, N = 4;
    int k = 0;
    for (; k + K <= s.reads; k += K) {
        int n = 0;
        for (; n + N <= s.width; n += N) pull_table<K, N>(s, x + k, table + k * s.stride + n, value, d + n, slope);
        for (; n < s.width; n++) pull_table<K, 1>(s, x + k, table + k * s.stride + n, value, d + n, slope);
    }
    for (; k < s.reads; k++) {
        int n = 0;
        for (; n + N <= s.width; n += N) pull_table<1, N>(s, x + k, table + k * s.stride + n, value, d + n, slope);
        for (; n < s.width; n++) pull_table<1, 1>(s, x + k, table + k * s.stride + n, value, d + n, slope);
    }
    if (s.starts >= 0) EACH(n, s.width) {
        V sum = one(0.0f);
        EACH(m, s.count) sum += d[m * s.width + n];
        slope[TABLE[s.starts + n]] += sum;
    }
}

// Softmax of a row.
INLINE void soften(const int32_t* x, int reads, const V* value, V* to) {
    V high = value[x[0]], sum = one(0.0f);
    EACH_FROM(1, n, reads) high = above<LANES>(high, value[x[n]]);
    EACH(n, reads) sum += to[n] = exponential<LANES>(value[x[n]] - high);
    const V inverse = one(1.0f) / sum;
    EACH(n, reads) to[n] = to[n] * inverse;
}
INLINE void pull_softened(const int32_t* x, int reads, const V* y, const V* d, V* slope) {
    V sum = one(0.0f);
    EACH(n, reads) sum = fma<LANES>(d[n], y[n], sum);
    EACH(n, reads) slope[x[n]] += y[n] * (d[n] - sum);
}

// A row over the root of its mean square and a small number (`eps`), less its mean if CENTRED.
template <bool CENTRED> INLINE void norm(const int32_t* x, int reads, V eps, const V* value, V* to) {
    const V share = one(1.0f / reads);
    V mean = one(0.0f), square = one(0.0f);
    if (CENTRED) {
        EACH(n, reads) mean += value[x[n]];
        mean = mean * share;
    }
    EACH(n, reads) {
        to[n] = value[x[n]] - mean;
        square = fma<LANES>(to[n], to[n], square);
    }
    const V inverse = one(1.0f) / root<LANES>(fma<LANES>(square, share, eps));
    EACH(n, reads) to[n] = to[n] * inverse;
    to[reads] = inverse;
}
template <bool CENTRED> INLINE void pull_norm(const int32_t* x, int reads, const V* y, const V* d, V* slope) {
    const V share = one(1.0f / reads);
    V mean = one(0.0f), along = one(0.0f);
    EACH(n, reads) {
        if (CENTRED) mean += d[n];
        along = fma<LANES>(d[n], y[n], along);
    }
    mean = mean * share, along = along * share;
    EACH(n, reads) slope[x[n]] += y[reads] * ((d[n] - mean) - y[n] * along);
}

// The row of a table that each lane's token says, below 0 from its end; a number outside of the table is its first or last
// row's.
INLINE void rows_of(const Step& s, V token, int32_t (&row)[LANES]) {
    const V from = select<LANES>(token >= one(0.0f), token, token + one(s.rows));
    store<LANES>(row, whole<LANES>(below<LANES>(one(s.rows - 1.0f), above<LANES>(one(0.0f), from))));
    for (int l = 0; l < LANES; l++) row[l] = s.table + row[l] * s.stride;
}
template <bool WIDE> INLINE void look_up_row(const Step& s, V token, const V* value, const float* wide, V* to) {
    int32_t row[LANES];
    rows_of(s, token, row);
    EACH(n, s.width) {
        float lane[LANES];
        for (int l = 0; l < LANES; l++) {
            const int entry = TABLE[row[l] + n];
            lane[l] = WIDE ? wide[entry] : ((const float*)&value[entry])[l];
        }
        to[n] = load<LANES>(lane);
    }
}
INLINE void pull_looked_up(const Step& s, V token, const V* d, V* slope) {
    int32_t row[LANES];
    rows_of(s, token, row);
    EACH(n, s.width)
        for (int l = 0; l < LANES; l++) ((float*)&slope[TABLE[row[l] + n]])[l] += ((const float*)&d[n])[l];
}

// The registers of a block, and the gradient towards them: between two blocks that of what operations make is 0.
struct Room {
    V value[REGISTERS], slope[REGISTERS];

    void begin(const float* wide) {
        EACH(n, SIZE) value[n] = one(wide[n]);
        EACH(n, CONSTANTS) value[SIZE + TOKENS + n] = one(KNOWN[n]);
        EACH(n, SIZE + TOKENS + CONSTANTS) slope[n] = one(0.0f);
    }

    void forwards(const float* wide) {
        constexpr int L = LANES;
        const V* v = value;
#define ROWS(name, makes) \
    case name: \
        for (int item = 0; item < s.count; item++, x += s.reads, to += s.width) { makes; } \
        break;
#define RUN(name, expression) \
    case name: \
        for (int item = 0; item < s.count; item++, x += s.reads) { \
            const V a = v[x[0]], b = v[x[s.reads > 1]], c = v[x[s.reads > 2 ? 2 : 0]]; \
            (void)b, (void)c; \
            to[item] = expression; \
        } \
        break;
        for (const Step& s : STEP) {
            const int32_t* x = READ + s.read;
            V* to = value + s.out;
            switch (s.kind) {
                EACH_OPERATION(RUN)
                ROWS(TANH, *to = hyperbolic(v[x[0]]))
                ROWS(GELU, V unread; gelu<L>(v[x[0]], *to, unread))
                ROWS(RELU, *to = largest<L>(v[x[0]], one(0.0f)))
                ROWS(SUM, V sum = v[x[0]]; EACH_FROM(1, n, s.reads) sum += v[x[n]]; *to = sum)
                ROWS(SOFTMAX, soften(x, s.reads, v, to))
                ROWS(NORM, norm<true>(x, s.reads, v[TABLE[s.starts]], v, to))
                ROWS(RMS_NORM, norm<false>(x, s.reads, v[TABLE[s.starts]], v, to))
                ROWS(LOOKUP, look_up_row<false>(s, v[x[0]], v, wide, to))
                ROWS(LOOKUP_WIDE, look_up_row<true>(s, v[x[0]], v, wide, to))
                ROWS(AFFINE, affine_row<false>(s, x, v, wide, to))
                ROWS(AFFINE_WIDE, affine_row<true>(s, x, v, wide, to))
            }
        }
#undef RUN
#undef ROWS
    }

    void backwards(const float* wide) {
        constexpr int L = LANES;
        const V no = one(0.0f), *v = value;
#define PULL(name, body) \
    case name: \
        for (int item = 0; item < s.count; item++, x += s.reads) { \
            const int ia = x[0], ib = x[s.reads > 1], ic = x[s.reads > 2 ? 2 : 0]; \
            const V a = v[ia], b = v[ib], y = v[s.out + item], d = slope[s.out + item]; \
            (void)a, (void)b, (void)y, (void)ib, (void)ic; \
            V* const s = slope; \
            body; \
        } \
        break;
#define BACK(name, makes) \
    case name: \
        for (int item = 0; item < s.count; item++, x += s.reads, y += s.width, d += s.width) { makes; } \
        break;
        for (const Step* step = STEP + STEPS; step-- > STEP;) {
            const Step& s = *step;
            const int32_t* x = READ + s.read;
            const V *y = value + s.out, *d = slope + s.out;
            switch (s.kind) {
                EACH_PULL(PULL)
                BACK(TANH, slope[x[0]] += *d * (one(1.0f) - *y * *y))
                BACK(GELU, V unread; V its; gelu<L>(v[x[0]], unread, its); slope[x[0]] += *d * its)
                BACK(RELU, slope[x[0]] += select<L>(v[x[0]] > no, *d, no))
                BACK(SUM, EACH(n, s.reads) slope[x[n]] += *d)
                BACK(SOFTMAX, pull_softened(x, s.reads, y, d, slope))
                BACK(NORM, pull_norm<true>(x, s.reads, y, d, slope))
                BACK(RMS_NORM, pull_norm<false>(x, s.reads, y, d, slope))
                BACK(LOOKUP, pull_looked_up(s, v[x[0]], d, slope))
                BACK(LOOKUP_WIDE, pull_looked_up(s, v[x[0]], d, slope))
            case AFFINE: pull_product<false>(s, v, wide, d, slope); break;
            case AFFINE_WIDE: pull_product<true>(s, v, wide, d, slope); break;
            }
            EACH(n, s.count * s.width) slope[s.out + n] = no;
        }
#undef PULL
#undef BACK
    }
};

// Blocks of problems, and with TRAIN back. Returns the losses.
template <bool TRAIN, class Source>
ROUTINE V run(const Wide& w, const Source& source, int problems, Measures* m, Room& room, const Goal* goal,
              const Seen* seen) {
    V logits[ANSWERS][VOCABULARY], dlogits[ANSWERS][VOCABULARY], loss = one(0.0f);
    room.begin(w.number);
    for (int b = 0; b * LANES < problems; b++) {
        const Token* block = source(b);
        const I counted = first_lanes(problems - b * LANES);
        const Aim aim = aim_of(goal, b, counted, problems, ANSWERS, VOCABULARY);
        EACH(t, TOKENS) room.value[SIZE + t] = real<LANES>(of(block, t));
        room.forwards(w.number);
        EACH(a, ANSWERS) EACH(v, VOCABULARY) logits[a][v] = room.value[LOGIT[a * VOCABULARY + v]];
        const V block_loss = select<LANES>(counted, judge<TRAIN>(logits, dlogits, block, 0, aim), one(0.0f));
        loss += block_loss;
        if (TRAIN) {
            EACH(a, ANSWERS) EACH(v, VOCABULARY) room.slope[LOGIT[a * VOCABULARY + v]] += dlogits[a][v];
            room.backwards(w.number);
            continue;
        }
        I exact = counted;
        EACH(a, ANSWERS) {
            see(seen, b * ANSWERS + a, VOCABULARY, logits[a]);
            if (a >= COUNTED) continue;
            const I right = is_right<VOCABULARY>(logits[a], of(block, PROMPT + a)) & counted;
            exact = exact & right;
            m->right += count(right);
        }
        m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
        see_block(seen, b, exact);
    }
    return loss;
}

// The mean loss of problems, and its gradient.
template <class Source>
INLINE float train(const Wide& w, const Source& source, int problems, Wide& gradient, Room& room, Far&, const Goal* goal) {
    const V loss = run<true>(w, source, problems, nullptr, room, goal, nullptr);
    totals(room.slope, SIZE, gradient.number);
    return total(loss) / ((float)ANSWERS * problems);
}

template <class Source>
INLINE void evaluate(const Wide& w, const Source& source, int problems, Measures* sums, Room& room, const Seen* seen) {
    *sums = {0, 0, 0};
    run<false>(w, source, problems, sums, room, nullptr, seen);
}
