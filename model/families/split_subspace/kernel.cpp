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
    V operator()(I token) const { return look_up<LANES>(entries, token); }
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

// Sum x into the entries of a table by token.
INLINE void spread(V* __restrict entries, I token, V x) {
#pragma GCC unroll 16
    for (int v = 0; v < VOCABULARY; v++) entries[v] += select(token == all<LANES>(v), x, one(0));
}

// Sums over a short axis, even and odd places apart: an answer is one long chain of operations, and what does not wait
// for the one before it is done meanwhile.
template <int N> INLINE V dot(const V* x, const V* y) {
    V even = x[0] * y[0], odd = x[1] * y[1];
    for (int i = 2; i < N; i += 2) even = fma(x[i], y[i], even);
    for (int i = 3; i < N; i += 2) odd = fma(x[i], y[i], odd);
    return even + odd;
}
template <int N> INLINE V dot(const float* w, const V* x) {
    V even = one(w[0]) * x[0], odd = one(w[1]) * x[1];
    for (int i = 2; i < N; i += 2) even = fma(one(w[i]), x[i], even);
    for (int i = 3; i < N; i += 2) odd = fma(one(w[i]), x[i], odd);
    return even + odd;
}
template <int N> INLINE V sum_of(const V* x) {
    if constexpr (N == 1) return x[0];
    else return sum_of<N / 2>(x) + sum_of<N - N / 2>(x + N / 2);
}
template <int N> INLINE V highest(const V* x) {
    if constexpr (N == 1) return x[0];
    else return above(highest<N / 2>(x), highest<N - N / 2>(x + N / 2));
}

template <int N> INLINE V inverse_length(const V* x) {
    return one(1) / root(fma(dot<N>(x, x), one(1.0f / N), one(EPS)));
}

// The block after attention at one answer position: from channels to logits, and back to the channels' gradient.
// `share`: what a problem's loss counts, 0 where a lane is empty. Returns the loss.
template <bool TRAIN>
APART V answer(const Wide& __restrict w, const Tables& tables, Sums& __restrict g, int a, I here, I target,
                const V (*c)[ANSWERS], V (*dc)[ANSWERS], V share, V* logits) {
    V x[WIDTH], h[WIDTH], y[WIDTH], k[WIDTH], e[FFN], slope[FFN], out[TOK];
    for (int i = 0; i < WIDTH; i++) {
        x[i] = i < TOK ? tables.table[i < TOK ? i : 0](here) : one(w.positions[i < TOK ? 0 : i - TOK][a]);
        for (int o = 0; o < WRITES; o++) x[i] = fma(one(w.write[i][o]), c[o][a], x[i]);
    }
    V s1 = inverse_length<WIDTH>(x);
    for (int i = 0; i < WIDTH; i++) h[i] = x[i] * s1;
    for (int f = 0; f < FFN; f++) {
        V z = dot<WIDTH>(w.fc1[f], h);
        gelu(BIASES(z + one(w.fc1_bias[f]), z), e[f], slope[f]);
    }
    for (int i = 0; i < WIDTH; i++) {
        y[i] = BIASES(x[i] + one(w.fc2_bias[i]), x[i]);
        for (int f = 0; f < FFN; f++) y[i] = fma(one(w.fc2[i][f]), e[f], y[i]);
    }
    V s2 = inverse_length<WIDTH>(y);
    for (int i = 0; i < WIDTH; i++) k[i] = y[i] * s2;
    for (int j = 0; j < TOK; j++) out[j] = dot<WIDTH>(w.head[j], k);
    V q[VOCABULARY];
#pragma GCC unroll 16
    for (int v = 0; v < VOCABULARY; v++) {
        logits[v] = one(w.table[0][v]) * out[0];
        for (int j = 1; j < TOK; j++) logits[v] = fma(one(w.table[j][v]), out[j], logits[v]);
    }
    V high = highest<VOCABULARY>(logits), right = tables.table[0](target) * out[0];
    for (int j = 1; j < TOK; j++) right = fma(tables.table[j](target), out[j], right);
#pragma GCC unroll 16
    for (int v = 0; v < VOCABULARY; v++) q[v] = exponential(logits[v] - high);
    V sum = sum_of<VOCABULARY>(q);
    V loss = logarithm(sum) + (high - right);
    if (!TRAIN) return loss;

    V inverse = share / sum, dout[TOK], dk[WIDTH], dy[WIDTH], dx[WIDTH], dz[FFN], mean;
#pragma GCC unroll 16
    for (int v = 0; v < VOCABULARY; v++) {
        V dlogit = q[v] * inverse;
        q[v] = select(target == all<LANES>(v), dlogit - share, dlogit);
        for (int j = 0; j < TOK; j++) g.table[j][v] = fma(q[v], out[j], g.table[j][v]);
    }
    for (int j = 0; j < TOK; j++) dout[j] = dot<VOCABULARY>(w.table[j], q);
    for (int i = 0; i < WIDTH; i++) {
        dk[i] = one(w.head[0][i]) * dout[0];
        for (int j = 1; j < TOK; j++) dk[i] = fma(one(w.head[j][i]), dout[j], dk[i]);
        for (int j = 0; j < TOK; j++) g.head[j][i] = fma(dout[j], k[i], g.head[j][i]);
    }
    mean = dot<WIDTH>(dk, k) * one(1.0f / WIDTH);
    for (int i = 0; i < WIDTH; i++) {
        dy[i] = s2 * (dk[i] - k[i] * mean);
        BIASES(g.fc2_bias[i] += dy[i], 0);
        for (int f = 0; f < FFN; f++) g.fc2[i][f] = fma(dy[i], e[f], g.fc2[i][f]);
    }
    for (int f = 0; f < FFN; f++) {
        float column[WIDTH];
        for (int i = 0; i < WIDTH; i++) column[i] = w.fc2[i][f];
        dz[f] = dot<WIDTH>(column, dy) * slope[f];
        BIASES(g.fc1_bias[f] += dz[f], 0);
    }
    V dh[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        dh[i] = one(w.fc1[0][i]) * dz[0];
        for (int f = 1; f < FFN; f++) dh[i] = fma(one(w.fc1[f][i]), dz[f], dh[i]);
        for (int f = 0; f < FFN; f++) g.fc1[f][i] = fma(dz[f], h[i], g.fc1[f][i]);
    }
    mean = dot<WIDTH>(dh, h) * one(1.0f / WIDTH);
    for (int o = 0; o < WRITES; o++) dc[o][a] = one(0);
    for (int i = 0; i < WIDTH; i++) {
        dx[i] = fma(s1, dh[i] - h[i] * mean, dy[i]);
        for (int o = 0; o < WRITES; o++) {
            g.write[i][o] = fma(dx[i], c[o][a], g.write[i][o]);
            dc[o][a] = fma(one(w.write[i][o]), dx[i], dc[o][a]);
        }
        if (i < TOK) spread(g.table[i < TOK ? i : 0], here, dx[i]);
        else g.positions[i < TOK ? 0 : i - TOK][a] += dx[i];
    }
    return loss;
}

#if CIRCLE
#include "kernel_circle.h"
#else
#include "kernel_by_problem.h"
#endif

template <bool TRAIN>
static V run(const Wide& w, const int32_t* tokens, int problems, V* logits, Measures* m, Sums& g) {
    Tables tables(w);
    V loss = one(0);
    Attention& attention = own<Attention>();
    attention.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const int32_t* block = tokens + b * LANES * (POSITIONS + 1);
        I counted = first_lanes(problems - b * LANES), exact = counted;
        V share = select(counted, one(1.0f / ((float)ANSWERS * problems)), one(0)), block_loss = one(0);
        attention.forward<TRAIN>(w, tables, block);
        for (int a = 0; a < ANSWERS; a++) {
            I target = of(block, PROMPT + a);
            block_loss += answer<TRAIN>(w, tables, g, a, of(block, FIRST + a), target, attention.c, attention.dc(),
                                        share, logits);
            if (!TRAIN && a < 11) {
                I right = is_right<VOCABULARY>(logits, target) & counted;
                exact = exact & right;
                m->right += count(right);
            }
        }
        block_loss = select(counted, block_loss, one(0));
        loss += block_loss;
        if (TRAIN) attention.backward(w, tables, block, g);
        else m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
    }
    if (TRAIN) attention.finish(w, tables, tokens, problems, g);
    return loss;
}

extern "C" {
int kernel_size(void) { return SIZE; }
int kernel_length(void) { return POSITIONS + 1; }

float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient) {
    Sums& sums = own<Sums>();
    V logits[VOCABULARY];
    std::memset(&sums, 0, sizeof sums);
    V loss = run<true>(*(const Wide*)wide, tokens, problems, logits, nullptr, sums);
    for (int n = 0; n < SIZE; n++) gradient[n] = total(((const V*)&sums)[n]);
    return total(loss) / ((float)ANSWERS * problems);
}

void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums) {
    V logits[VOCABULARY];
    *sums = {0, 0, 0};
    run<false>(*(const Wide*)wide, tokens, problems, logits, sums, *(Sums*)nullptr);
}
}
