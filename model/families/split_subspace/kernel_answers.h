// The block after attention, for all answers of a block of problems: from channels to logits and loss, and back.
//
// An answer is one long chain of operations, each of which waits for the one before it. So it is taken in stages, each
// of them for all answers before the next, and some answers at once: the chains are short, and while one waits the CPU
// works at others. Sums over answers keep the order of answers.
#pragma once

constexpr int TOGETHER = REGISTER_LANES == 16 ? 2 : 1;  // a vector of 16 that is two registers is two chains already

template <int N> struct Count {
    static constexpr int value = N;
};
#define EACH_ANSWER each([&](auto count, int a) __attribute__((always_inline)) { \
    constexpr int N = decltype(count)::value; \
    typedef Floats<N * LANES> W;
#define END });

// `body` for all answers, TOGETHER of them at a time; it takes how many those are, and the first of them.
template <class Body> INLINE void each(Body body) {
    int a = 0;
    for (; a + TOGETHER <= ANSWERS; a += TOGETHER) body(Count<TOGETHER>(), a);
    for (; ANSWERS % TOGETHER && a < ANSWERS; a++) body(Count<1>(), a);
}

// N answers' vectors as one, of a number each or of one number for all.
template <int N> INLINE Floats<N * LANES> at(const V* first) { return load<N * LANES>((const float*)first); }
template <int N> INLINE void put(V* first, Floats<N * LANES> x) { store<N * LANES>((float*)first, x); }
template <int N> INLINE Ints<N * LANES> tokens_of(const int32_t* block, int position) {
    return load<N * LANES>(block + position * LANES);
}
template <int N> INLINE Floats<N * LANES> numbers(const float* first) {
    if constexpr (N == 1) return one(*first);
    else return {numbers<N / 2>(first), numbers<N / 2>(first + N / 2)};
}

struct Answers {
    V x[WIDTH][ANSWERS], h[WIDTH][ANSWERS], k[WIDTH][ANSWERS], s1[ANSWERS], s2[ANSWERS];
    V e[FFN][ANSWERS], slope[FFN][ANSWERS], out[TOK][ANSWERS], loss[ANSWERS];
    V q[VOCABULARY][ANSWERS];  // logits; with TRAIN, after `score`, the gradient towards them
    V dout[TOK][ANSWERS], dy[WIDTH][ANSWERS], dz[FFN][ANSWERS], dx[WIDTH][ANSWERS];

    void logits(int a, V* to) const {
        for (int v = 0; v < VOCABULARY; v++) to[v] = q[v][a];
    }

    void forward(const Wide& __restrict w, const Tables& tables, const int32_t* block, const V (*c)[ANSWERS]) {
        enter(w, tables, block, c);
        leave(w);
    }

    // The gradient of `score`, towards the wide tensors and channels.
    void backward(const Wide& __restrict w, Sums& __restrict g, const int32_t* block, const V (*c)[ANSWERS],
                  V (*dc)[ANSWERS]) {
        descend(w, dc);
        pull_out(g), pull_in(g, c), pull_table(g, block);
    }

    // Channels and token to the FFN's values.
    APART void enter(const Wide& __restrict w, const Tables& tables, const int32_t* block, const V (*c)[ANSWERS]) {
        EACH_ANSWER
            const auto here = tokens_of<N>(block, FIRST + a);
            W to[WIDTH], z[FFN], value, its;
            for (int i = 0; i < WIDTH; i++) {
                to[i] = i < TOK ? tables.table[i < TOK ? i : 0](here) : numbers<N>(&w.positions[i < TOK ? 0 : i - TOK][a]);
                for (int o = 0; o < WRITES; o++) to[i] = fma(all<N * LANES>(w.write[i][o]), at<N>(&c[o][a]), to[i]);
                put<N>(&x[i][a], to[i]);
            }
            const W s = inverse_length<WIDTH>(to);
            put<N>(&s1[a], s);
            for (int i = 0; i < WIDTH; i++) to[i] = to[i] * s, put<N>(&h[i][a], to[i]);
            for (int f = 0; f < FFN; f++) z[f] = dot<WIDTH>(w.fc1[f], to);
            for (int f = 0; f < FFN; f++) {
                gelu(BIASES(z[f] + all<N * LANES>(w.fc1_bias[f]), z[f]), value, its);
                put<N>(&e[f][a], value), put<N>(&slope[f][a], its);
            }
        END
    }

    // On to the logits.
    APART void leave(const Wide& __restrict w) {
        EACH_ANSWER
            W y[WIDTH], to[TOK];
            for (int i = 0; i < WIDTH; i++) {
                y[i] = at<N>(&x[i][a]);
                BIASES(y[i] += all<N * LANES>(w.fc2_bias[i]), 0);
                for (int f = 0; f < FFN; f++) y[i] = fma(all<N * LANES>(w.fc2[i][f]), at<N>(&e[f][a]), y[i]);
            }
            const W s = inverse_length<WIDTH>(y);
            put<N>(&s2[a], s);
            for (int i = 0; i < WIDTH; i++) y[i] = y[i] * s, put<N>(&k[i][a], y[i]);
            for (int j = 0; j < TOK; j++) to[j] = dot<WIDTH>(w.head[j], y), put<N>(&out[j][a], to[j]);
#pragma GCC unroll 16
            for (int v = 0; v < VOCABULARY; v++) {
                W logit = all<N * LANES>(w.table[0][v]) * to[0];
                for (int j = 1; j < TOK; j++) logit = fma(all<N * LANES>(w.table[j][v]), to[j], logit);
                put<N>(&q[v][a], logit);
            }
        END
    }

    // Losses, and with TRAIN the gradient towards the logits, in their place.
    template <bool TRAIN> APART void score(const Tables& tables, const int32_t* block, const Aim& aim) {
#if LOSS
        if (TRAIN) {
            for (int a = 0; a < ANSWERS; a++) {
                V its[VOCABULARY];
                logits(a, its);
                loss[a] = learn<VOCABULARY>(its, of(block, PROMPT + a), aim, a, its);
                for (int v = 0; v < VOCABULARY; v++) q[v][a] = its[v];
            }
            return;
        }
#endif
        V shares[TOGETHER];
        for (V& its : shares) its = aim.share;
        EACH_ANSWER
            const auto target = tokens_of<N>(block, PROMPT + a);
            W p[VOCABULARY], right = tables.table[0](target) * at<N>(&out[0][a]);
            for (int j = 1; j < TOK; j++) right = fma(tables.table[j](target), at<N>(&out[j][a]), right);
#pragma GCC unroll 16
            for (int v = 0; v < VOCABULARY; v++) p[v] = at<N>(&q[v][a]);
            const W high = highest<VOCABULARY>(p);
#pragma GCC unroll 16
            for (int v = 0; v < VOCABULARY; v++) p[v] = exponential(p[v] - high);
            const W sum = sum_of<VOCABULARY>(p);
            put<N>(&loss[a], logarithm(sum) + (high - right));
            if (!TRAIN) return;
            const W part = at<N>(shares), inverse = part / sum;
#pragma GCC unroll 16
            for (int v = 0; v < VOCABULARY; v++) {
                const W dlogit = p[v] * inverse;
                put<N>(&q[v][a], select(target == all<N * LANES>(v), dlogit - part, dlogit));
            }
        END
    }

    // The gradient's way back, from logits to channels.
    APART void descend(const Wide& __restrict w, V (*dc)[ANSWERS]) {
        EACH_ANSWER
            W dlogits[VOCABULARY], to[TOK], dk[WIDTH], its[WIDTH], pull[WRITES], mean;
#pragma GCC unroll 16
            for (int v = 0; v < VOCABULARY; v++) dlogits[v] = at<N>(&q[v][a]);
            for (int j = 0; j < TOK; j++) to[j] = dot<VOCABULARY>(w.table[j], dlogits), put<N>(&dout[j][a], to[j]);
            for (int i = 0; i < WIDTH; i++) {
                dk[i] = all<N * LANES>(w.head[0][i]) * to[0];
                for (int j = 1; j < TOK; j++) dk[i] = fma(all<N * LANES>(w.head[j][i]), to[j], dk[i]);
                its[i] = at<N>(&k[i][a]);
            }
            mean = dot<WIDTH>(dk, its) * all<N * LANES>(1.0f / WIDTH);
            for (int i = 0; i < WIDTH; i++) {
                dk[i] = at<N>(&s2[a]) * (dk[i] - its[i] * mean);
                put<N>(&dy[i][a], dk[i]);
            }
            W pulled[FFN], dh[WIDTH];
            for (int f = 0; f < FFN; f++) {
                float column[WIDTH];
                for (int i = 0; i < WIDTH; i++) column[i] = w.fc2[i][f];
                pulled[f] = dot<WIDTH>(column, dk) * at<N>(&slope[f][a]);
                put<N>(&dz[f][a], pulled[f]);
            }
            for (int i = 0; i < WIDTH; i++) {
                dh[i] = all<N * LANES>(w.fc1[0][i]) * pulled[0];
                for (int f = 1; f < FFN; f++) dh[i] = fma(all<N * LANES>(w.fc1[f][i]), pulled[f], dh[i]);
                its[i] = at<N>(&h[i][a]);
            }
            mean = dot<WIDTH>(dh, its) * all<N * LANES>(1.0f / WIDTH);
            for (int o = 0; o < WRITES; o++) pull[o] = all<N * LANES>(0.0f);
            for (int i = 0; i < WIDTH; i++) {
                const W d = fma(at<N>(&s1[a]), dh[i] - its[i] * mean, dk[i]);
                for (int o = 0; o < WRITES; o++) pull[o] = fma(all<N * LANES>(w.write[i][o]), d, pull[o]);
                put<N>(&dx[i][a], d);
            }
            for (int o = 0; o < WRITES; o++) put<N>(&dc[o][a], pull[o]);
        END
    }

    // Towards the weights after the FFN's values. Sums are held in registers while answers go by.
    APART void pull_out(Sums& __restrict g) {
        V head[TOK][WIDTH], fc2[WIDTH][FFN];
        copy(head, g.head), copy(fc2, g.fc2);
        for (int a = 0; a < ANSWERS; a++) {
            for (int i = 0; i < WIDTH; i++) {
                for (int j = 0; j < TOK; j++) head[j][i] = fma(dout[j][a], k[i][a], head[j][i]);
                for (int f = 0; f < FFN; f++) fc2[i][f] = fma(dy[i][a], e[f][a], fc2[i][f]);
            }
        }
        copy(g.head, head), copy(g.fc2, fc2);
    }

    // Towards the weights before them.
    APART void pull_in(Sums& __restrict g, const V (*c)[ANSWERS]) {
        V fc1[FFN][WIDTH], write[WIDTH][WRITES];
        copy(fc1, g.fc1), copy(write, g.write);
        for (int a = 0; a < ANSWERS; a++) {
            for (int i = 0; i < WIDTH; i++) {
                for (int f = 0; f < FFN; f++) fc1[f][i] = fma(dz[f][a], h[i][a], fc1[f][i]);
                for (int o = 0; o < WRITES; o++) write[i][o] = fma(dx[i][a], c[o][a], write[i][o]);
            }
            for (int i = 0; i < POS; i++) g.positions[i][a] += dx[TOK + i][a];
        }
        copy(g.fc1, fc1), copy(g.write, write);
#if BIAS
        for (int a = 0; a < ANSWERS; a++) {
            for (int i = 0; i < WIDTH; i++) g.fc2_bias[i] += dy[i][a];
            for (int f = 0; f < FFN; f++) g.fc1_bias[f] += dz[f][a];
        }
#endif
    }

    // Towards the table of tokens, which is read both as an input and as an output.
    APART void pull_table(Sums& __restrict g, const int32_t* block) {
        for (int j = 0; j < TOK; j++) {
            V sums[VOCABULARY];
            for (int v = 0; v < VOCABULARY; v++) sums[v] = g.table[j][v];
            for (int a = 0; a < ANSWERS; a++) {
#pragma GCC unroll 16
                for (int v = 0; v < VOCABULARY; v++) sums[v] = fma(q[v][a], out[j][a], sums[v]);
                spread(sums, of(block, FIRST + a), dx[j][a]);
            }
            for (int v = 0; v < VOCABULARY; v++) g.table[j][v] = sums[v];
        }
    }
};
#undef EACH_ANSWER
#undef END
