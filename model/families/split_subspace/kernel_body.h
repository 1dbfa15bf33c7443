// The split_subspace family from its wide tensors on: everything that depends on the problem, and its gradient. The wide
// tensors are those of `expand` (forward.py), in its order.
#pragma once

#include "kernel.h"

constexpr int WIDTH = TOK + POS;
constexpr int READS = HEADS * CHANNELS, WRITES = SUMMED ? CHANNELS : READS;
constexpr int CHUNK = 16;  // blocks between two passes over a circle's attention weights
constexpr int BLOCKS_KEPT = CIRCLE ? CHUNK : 1;  // of tokens, where they are made block by block
#if BIAS
#define BIASES(with, without) (with)
#else
#define BIASES(with, without) (without)
#endif
constexpr float EPS = 1e-5f;

struct Wide {
    float table[TOK][VOCABULARY], positions[POS][ANSWERS], write[WIDTH][WRITES];
    float fc1[FFN][WIDTH], fc2[WIDTH][FFN], head[TOK][WIDTH];
#if BIAS
    float fc1_bias[FFN], fc2_bias[WIDTH];
#endif
    float values[READS][VOCABULARY], attention[HEADS][ANSWERS][POSITIONS];  // weights on a circle, else a form
#if !CIRCLE
    float scale[POSITIONS][VOCABULARY];
#endif
};
constexpr int SIZE = sizeof(Wide) / sizeof(float);

// The gradient's sums over problems, a lane each: those whose places are known when this is compiled, which a thread has
// in registers, and the others.
struct Near {
    V table[TOK][VOCABULARY], write[WIDTH][WRITES], fc1[FFN][WIDTH], fc2[WIDTH][FFN], head[TOK][WIDTH];
#if BIAS
    V fc1_bias[FFN], fc2_bias[WIDTH];
#endif
};
struct Far {
    Stored positions[POS][ANSWERS], values[READS][VOCABULARY];
#if !SUMS_OF_CHUNK
    Stored attention[HEADS][ANSWERS][POSITIONS];
#endif
#if !CIRCLE
    Stored scale[POSITIONS][VOCABULARY];
#endif
};

INLINE int written(int read) { return SUMMED ? read % CHANNELS : read; }

// Sum x into the entries of a table by token: what does best where masks are registers of their own, and elsewhere. The
// sums begin at 0, and none is ever -0, so these are the same bits.
INLINE void spread(V* __restrict entries, I token, V x) {
    ALL(v, VOCABULARY) {
        const I its = token == all<LANES>(v);
        if (REGISTER_LANES == LANES) entries[v] = select(its, entries[v] + x, entries[v]);
        else entries[v] += select(its, x, one(0));
    }
}
#if THREADS
INLINE void spread(Stored* entries, I token, V x) { entries[token.v] += x; }
#endif

// A row of a table as what `look_up` reads.
struct Table {
#if THREADS
    const float* entries;
#else
    float entries[LANES] = {};
    void take(const float* from) { std::memcpy(entries, from, sizeof(float) * VOCABULARY); }
#endif
    template <int L> INLINE_MEMBER Floats<L> operator()(Ints<L> token) const { return look_up<L>(entries, token); }
};
#if THREADS
struct Tables {
    const Wide& w;
    INLINE_MEMBER Table table(int i) const { return {w.table[i]}; }
    INLINE_MEMBER Table values(int r) const { return {w.values[r]}; }
#if !CIRCLE
    INLINE_MEMBER Table scale(int t) const { return {w.scale[t]}; }
#endif
};
#else
struct Tables {
    Table tables[TOK], reads[READS];
    const Table& table(int i) const { return tables[i]; }
    const Table& values(int r) const { return reads[r]; }
#if !CIRCLE
    Table scales[POSITIONS];
    const Table& scale(int t) const { return scales[t]; }
#endif
    explicit Tables(const Wide& w) {
        EACH(i, TOK) tables[i].take(w.table[i]);
        EACH(r, READS) reads[r].take(w.values[r]);
#if !CIRCLE
        EACH(t, POSITIONS) scales[t].take(w.scale[t]);
#endif
    }
};
#endif

// Sums over a short axis, even and odd places apart: an answer is one long chain of operations, and what does not wait
// for the one before it is done meanwhile.
template <int N, int L> INLINE Floats<L> dot(const Floats<L>* x, const Floats<L>* y) {
    Floats<L> even = x[0] * y[0], odd = x[1] * y[1];
    EACH_FROM(1, i, (N + 1) / 2) even = fma(x[2 * i], y[2 * i], even);
    EACH_FROM(1, i, N / 2) odd = fma(x[2 * i + 1], y[2 * i + 1], odd);
    return even + odd;
}
template <int N, int L> INLINE Floats<L> dot(const float* w, const Floats<L>* x) {
    Floats<L> even = all<L>(w[0]) * x[0], odd = all<L>(w[1]) * x[1];
    EACH_FROM(1, i, (N + 1) / 2) even = fma(all<L>(w[2 * i]), x[2 * i], even);
    EACH_FROM(1, i, N / 2) odd = fma(all<L>(w[2 * i + 1]), x[2 * i + 1], odd);
    return even + odd;
}
template <int N, int L> INLINE Floats<L> sum_of(const Floats<L>* x) {
    if constexpr (N == 1) return x[0];
    else return sum_of<N / 2>(x) + sum_of<N - N / 2>(x + N / 2);
}
template <int N, int L> INLINE Floats<L> highest(const Floats<L>* x) {
    if constexpr (N == 1) return x[0];
    else return above(highest<N / 2>(x), highest<N - N / 2>(x + N / 2));
}

template <int M, int N> INLINE void copy(V (&to)[M][N], const V (&from)[M][N]) {
    EACH(m, M) EACH(n, N) to[m][n] = from[m][n];
}

template <int N, int L> INLINE Floats<L> inverse_length(const Floats<L>* x) {
    return all<L>(1.0f) / root(fma(dot<N>(x, x), all<L>(1.0f / N), all<L>(EPS)));
}

#include "kernel_answers.h"
#if CIRCLE
#include "kernel_circle.h"
#else
#include "kernel_by_problem.h"
#endif

// Blocks of problems through the model, and with TRAIN back; `source` has a block's tokens. Returns the losses.
template <bool TRAIN, class Source>
ROUTINE V run(const Wide& __restrict w, const Source& source, int problems, Measures* m, Attention& attention, Near& near,
             Far& far, Wide& gradient, const Goal* goal, const Seen* seen) {
    const Tables tables{w};
    V loss = one(0);
    LOCAL(Answers, answers);
    attention.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const Token* block = source(b);
        const I counted = first_lanes(problems - b * LANES);
        const Aim aim = aim_of(goal, b, counted, problems, ANSWERS, VOCABULARY);
        V block_loss = one(0);
        I exact = counted;
        attention.forward<TRAIN>(w, tables, block);
        EACH_STAGE(first) {
            answers.begin(first);
            answers.forward(w, tables, block, attention.c);
            answers.score<TRAIN>(tables, block, aim);
            EACH(s, STAGE) block_loss += answers.loss[s];
            if (TRAIN) answers.backward(w, near, far, block, attention.c, attention.dc(b));
            else EACH(s, STAGE) {
                const int a = first + s;
                V logits[VOCABULARY];
                answers.logits(s, logits);
                see(seen, b * ANSWERS + a, VOCABULARY, logits);
                if (a >= COUNTED) continue;
                const I right = is_right<VOCABULARY>(logits, of(block, PROMPT + a)) & counted;
                exact = exact & right;
                m->right += count(right);
            }
        }
        block_loss = select(counted, block_loss, one(0));
        loss += block_loss;
        if (TRAIN) {
            attention.backward(w, tables, block, b, (b + 1) * LANES >= problems, far, gradient);
        } else {
            m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
            see_block(seen, b, exact);
        }
    }
    return loss;
}

typedef Attention Room;  // a seed's working memory

// The mean loss of problems, and its gradient.
template <class Source>
INLINE float train(const Wide& w, const Source& source, int problems, Wide& gradient, Room& room, Far& far,
                   const Goal* goal) {
    LOCAL(Near, near);
    clear<V>(near), clear<Stored>(far);
    const V loss = run<true>(w, source, problems, nullptr, room, near, far, gradient, goal, nullptr);
    total_all<V>(near.table, gradient.table), total_all<Stored>(far.positions, gradient.positions);
    total_all<V>(near.write, gradient.write), total_all<V>(near.fc1, gradient.fc1), total_all<V>(near.fc2, gradient.fc2);
    total_all<V>(near.head, gradient.head), total_all<Stored>(far.values, gradient.values);
#if BIAS
    total_all<V>(near.fc1_bias, gradient.fc1_bias), total_all<V>(near.fc2_bias, gradient.fc2_bias);
#endif
#if !SUMS_OF_CHUNK
    total_all<Stored>(far.attention, gradient.attention);
#endif
#if !CIRCLE
    total_all<Stored>(far.scale, gradient.scale);
#endif
    return total(loss) / ((float)ANSWERS * problems);
}

template <class Source>
INLINE void evaluate(const Wide& w, const Source& source, int problems, Measures* sums, Room& room, const Seen* seen) {
    *sums = {0, 0, 0};
    run<false>(w, source, problems, sums, room, *(Near*)nullptr, *(Far*)nullptr, *(Wide*)nullptr, nullptr, seen);
}
