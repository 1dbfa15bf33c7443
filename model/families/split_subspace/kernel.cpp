// The split_subspace family from its wide tensors on: everything that depends on the problem, and its gradient.
//
// Compiled for one shape: TOK and POS dimensions, VOCABULARY, HEADS, CHANNELS of a head, SUMMED (heads add into the same
// channels), CIRCLE (attention is the same for all problems), BIAS, ANSWERS. The wide tensors are those of `expand`
// (forward.py), in its order. Axes of arrays: A answer position, P position, C channel, V token.
#include "kernel.h"

constexpr int WIDTH = TOK + POS, FFN = 2, PROMPT = 22, FIRST = PROMPT - 1, POSITIONS = FIRST + ANSWERS;
constexpr int READS = HEADS * CHANNELS, WRITES = SUMMED ? CHANNELS : READS;
constexpr int CHUNK = 16;  // blocks between two passes over a circle's attention weights
#if BIAS
#define BIASES(with, without) (with)
#else
#define BIASES(with, without) (without)
#endif
constexpr float EPS = 1e-5f;

template <class E> struct WideOf {
    E table[TOK][VOCABULARY], positions[POS][ANSWERS], write[WIDTH][WRITES];
    E fc1[FFN][WIDTH], fc2[WIDTH][FFN], head[TOK][WIDTH];
#if BIAS
    E fc1_bias[FFN], fc2_bias[WIDTH];
#endif
    E values[READS][VOCABULARY], attention[HEADS][ANSWERS][POSITIONS];  // weights on a circle, else a form
#if !CIRCLE
    E scale[POSITIONS][VOCABULARY];
#endif
};
typedef WideOf<float> Wide;
typedef WideOf<V> Sums;
constexpr int SIZE = sizeof(Wide) / sizeof(float);

struct Table {  // a row of a table as what `look_up` reads
    float entries[LANES] = {};
    void take(const float* from) { std::memcpy(entries, from, sizeof(float) * VOCABULARY); }
    template <int L> Floats<L> operator()(Ints<L> token) const { return look_up<L>(entries, token); }
};

struct Tables {
    Table table[TOK], values[READS];
#if !CIRCLE
    Table scale[POSITIONS];
#endif
    explicit Tables(const Wide& w) {
        for (int i = 0; i < TOK; i++) table[i].take(w.table[i]);
        for (int r = 0; r < READS; r++) values[r].take(w.values[r]);
#if !CIRCLE
        for (int t = 0; t < POSITIONS; t++) scale[t].take(w.scale[t]);
#endif
    }
};

INLINE int written(int read) { return SUMMED ? read % CHANNELS : read; }

// Sum x into the entries of a table by token: what does best where masks are registers of their own, and elsewhere. The
// sums begin at 0, and none is ever -0, so these are the same bits.
INLINE void spread(V* __restrict entries, I token, V x) {
#pragma GCC unroll 16
    for (int v = 0; v < VOCABULARY; v++) {
        const I its = token == all<LANES>(v);
        if (REGISTER_LANES == LANES) entries[v] = select(its, entries[v] + x, entries[v]);
        else entries[v] += select(its, x, one(0));
    }
}

// Sums over a short axis, even and odd places apart: an answer is one long chain of operations, and what does not wait
// for the one before it is done meanwhile.
template <int N, int L> INLINE Floats<L> dot(const Floats<L>* x, const Floats<L>* y) {
    Floats<L> even = x[0] * y[0], odd = x[1] * y[1];
    for (int i = 2; i < N; i += 2) even = fma(x[i], y[i], even);
    for (int i = 3; i < N; i += 2) odd = fma(x[i], y[i], odd);
    return even + odd;
}
template <int N, int L> INLINE Floats<L> dot(const float* w, const Floats<L>* x) {
    Floats<L> even = all<L>(w[0]) * x[0], odd = all<L>(w[1]) * x[1];
    for (int i = 2; i < N; i += 2) even = fma(all<L>(w[i]), x[i], even);
    for (int i = 3; i < N; i += 2) odd = fma(all<L>(w[i]), x[i], odd);
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
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) to[m][n] = from[m][n];
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

template <bool TRAIN>
static V run(const Wide& w, const int32_t* tokens, int problems, Measures* m, Sums& g, const Goal* goal,
             const Seen* seen = nullptr) {
    Tables tables(w);
    V loss = one(0);
    Attention& attention = own<Attention>();
    Answers& answers = own<Answers>();
    attention.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const int32_t* block = tokens + b * LANES * (POSITIONS + 1);
        I counted = first_lanes(problems - b * LANES), exact = counted;
        const Aim aim = aim_of(goal, b, counted, problems, ANSWERS, VOCABULARY);
        V block_loss = one(0);
        attention.forward<TRAIN>(w, tables, block);
        answers.forward(w, tables, block, attention.c);
        answers.score<TRAIN>(tables, block, aim);
        for (int a = 0; a < ANSWERS; a++) block_loss += answers.loss[a];
        for (int a = 0; !TRAIN && a < 11; a++) {
            V logits[VOCABULARY];
            answers.logits(a, logits);
            I right = is_right<VOCABULARY>(logits, of(block, PROMPT + a)) & counted;
            exact = exact & right;
            m->right += count(right);
        }
        block_loss = select(counted, weighed(aim, block_loss), one(0));
        loss += block_loss;
        if (TRAIN) {
            answers.backward(w, g, block, attention.c, attention.dc());
            attention.backward(w, tables, block, g);
        } else {
            m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
            for (int a = 0; seen && a < ANSWERS; a++) {
                V logits[VOCABULARY];
                answers.logits(a, logits);
                see(seen, b * ANSWERS + a, VOCABULARY, logits);
            }
            see_losses(seen, b, ANSWERS, block_loss);
        }
    }
    if (TRAIN) attention.finish(w, tables, tokens, problems, g);
    return loss;
}

extern "C" {
int kernel_size(void) { return SIZE; }
int kernel_length(void) { return POSITIONS + 1; }

float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal) {
    Sums& sums = own<Sums>();
    std::memset(&sums, 0, sizeof sums);
    V loss = run<true>(*(const Wide*)wide, tokens, problems, nullptr, sums, goal);
    totals((const V*)&sums, SIZE, gradient);
    return total(loss) / ((float)ANSWERS * problems);
}

void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums) {
    *sums = {0, 0, 0};
    run<false>(*(const Wide*)wide, tokens, problems, sums, *(Sums*)nullptr, nullptr);
}

#if LOSS
void kernel_look(const float* wide, const int32_t* tokens, int problems, const Seen* seen) {
    Measures unread = {0, 0, 0};
    run<false>(*(const Wide*)wide, tokens, problems, &unread, *(Sums*)nullptr, nullptr, seen);
}
#endif
}
