// The block after attention, for all answers of a block of problems: from channels to logits and loss, and back.
//
// An answer is one long chain of operations, each of which waits for the one before it. So a CPU takes it in stages, each
// of them for all answers before the next, and some answers at once: the chains are short, and while one waits the CPU
// works at others. A thread takes an answer through all stages before the next. Sums over answers keep their order.
#pragma once

constexpr int TOGETHER = !THREADS && REGISTER_LANES == 16 ? 2 : 1;  // a vector of two registers is two chains already

#if THREADS
#define EACH_ANSWER { \
    constexpr int N = 1, s = 0; \
    const int a = first; \
    typedef V W;
#define END }
#else
template <int N> struct Count {
    static constexpr int value = N;
};
#define EACH_ANSWER each([&](auto count, int s) __attribute__((always_inline)) { \
    constexpr int N = decltype(count)::value; \
    const int a = s; \
    typedef Floats<N * LANES> W;
#define END });

// `body` for all answers, TOGETHER of them at a time; it takes how many those are, and the first of them.
template <class Body> INLINE void each(Body body) {
    int a = 0;
    for (; a + TOGETHER <= ANSWERS; a += TOGETHER) body(Count<TOGETHER>(), a);
    for (; ANSWERS % TOGETHER && a < ANSWERS; a++) body(Count<1>(), a);
}
#endif

struct Answers {
#if THREADS
    int first;  // answer of a stage
    INLINE_MEMBER void begin(int answer) { first = answer; }
#else
    static constexpr int first = 0;
    void begin(int) {}
#endif
    V x[WIDTH][STAGE], h[WIDTH][STAGE], k[WIDTH][STAGE], s1[STAGE], s2[STAGE];
    V e[FFN][STAGE], slope[FFN][STAGE], out[TOK][STAGE], loss[STAGE];
    V q[VOCABULARY][STAGE];  // logits; with TRAIN, after `score`, the gradient towards them
    V dout[TOK][STAGE], dy[WIDTH][STAGE], dz[FFN][STAGE], dx[WIDTH][STAGE];

    void logits(int s, V* to) const {
        EACH(v, VOCABULARY) to[v] = q[v][s];
    }

    void forward(const Wide& __restrict w, const Tables& tables, const Token* block, const Stored (*c)[ANSWERS]) {
        enter(w, tables, block, c);
        leave(w);
    }

    // The gradient of `score`, towards the wide tensors and channels.
    void backward(const Wide& __restrict w, Near& g, Far& far, const Token* block, const Stored (*c)[ANSWERS],
                  Stored (*dc)[ANSWERS]) {
        descend(w, dc);
        pull_out(g), pull_in(g, far, c), pull_table(g, block);
    }

    // Channels and token to the FFN's values.
    APART void enter(const Wide& __restrict w, const Tables& tables, const Token* block, const Stored (*c)[ANSWERS]) {
        EACH_ANSWER
            const auto here = tokens_of<N>(block, FIRST + a);
            W to[WIDTH], z[FFN], value, its;
            EACH(i, WIDTH) {
                to[i] = i < TOK ? tables.table(i < TOK ? i : 0)(here) : numbers<N>(&w.positions[i < TOK ? 0 : i - TOK][a]);
                EACH(o, WRITES) to[i] = fma(all<N * LANES>(w.write[i][o]), at<N>(&c[o][a]), to[i]);
                put<N>(&x[i][s], to[i]);
            }
            const W scale = inverse_length<WIDTH>(to);
            put<N>(&s1[s], scale);
            EACH(i, WIDTH) to[i] = to[i] * scale, put<N>(&h[i][s], to[i]);
            EACH(f, FFN) z[f] = dot<WIDTH>(w.fc1[f], to);
            EACH(f, FFN) {
                gelu(BIASES(z[f] + all<N * LANES>(w.fc1_bias[f]), z[f]), value, its);
                put<N>(&e[f][s], value), put<N>(&slope[f][s], its);
            }
        END
    }

    // On to the logits.
    APART void leave(const Wide& __restrict w) {
        EACH_ANSWER
            W y[WIDTH], to[TOK];
            EACH(i, WIDTH) {
                y[i] = at<N>(&x[i][s]);
                BIASES(y[i] += all<N * LANES>(w.fc2_bias[i]), 0);
                EACH(f, FFN) y[i] = fma(all<N * LANES>(w.fc2[i][f]), at<N>(&e[f][s]), y[i]);
            }
            const W scale = inverse_length<WIDTH>(y);
            put<N>(&s2[s], scale);
            EACH(i, WIDTH) y[i] = y[i] * scale, put<N>(&k[i][s], y[i]);
            EACH(j, TOK) to[j] = dot<WIDTH>(w.head[j], y), put<N>(&out[j][s], to[j]);
            ALL(v, VOCABULARY) {
                W logit = all<N * LANES>(w.table[0][v]) * to[0];
                EACH_FROM(1, j, TOK) logit = fma(all<N * LANES>(w.table[j][v]), to[j], logit);
                put<N>(&q[v][s], logit);
            }
        END
    }

    // Losses, and with TRAIN the gradient towards the logits, in their place.
    template <bool TRAIN> APART void score(const Tables& tables, const Token* block, const Aim& aim) {
#if LOSS
        if (TRAIN) {
            EACH(s, STAGE) {
                V its[VOCABULARY];
                logits(s, its);
                loss[s] = learn<VOCABULARY>(its, of(block, PROMPT + first + s), aim, first + s, its);
                EACH(v, VOCABULARY) q[v][s] = its[v];
            }
            return;
        }
#endif
        V shares[TOGETHER];
        EACH(n, TOGETHER) shares[n] = aim.share;
        EACH_ANSWER
            const auto target = tokens_of<N>(block, PROMPT + a);
            W p[VOCABULARY], right = tables.table(0)(target) * at<N>(&out[0][s]);
            EACH_FROM(1, j, TOK) right = fma(tables.table(j)(target), at<N>(&out[j][s]), right);
            ALL(v, VOCABULARY) p[v] = at<N>(&q[v][s]);
            const W high = highest<VOCABULARY>(p);
            ALL(v, VOCABULARY) p[v] = exponential(p[v] - high);
            const W sum = sum_of<VOCABULARY>(p);
            put<N>(&loss[s], logarithm(sum) + (high - right));
            if constexpr (TRAIN) {
                const W part = at<N>(shares), inverse = part / sum;
                ALL(v, VOCABULARY) {
                    const W dlogit = p[v] * inverse;
                    put<N>(&q[v][s], select(target == all<N * LANES>(v), dlogit - part, dlogit));
                }
            }
        END
    }

    // The gradient's way back, from logits to channels.
    APART void descend(const Wide& __restrict w, Stored (*dc)[ANSWERS]) {
        EACH_ANSWER
            W dlogits[VOCABULARY], to[TOK], dk[WIDTH], its[WIDTH], pull[WRITES], mean;
            ALL(v, VOCABULARY) dlogits[v] = at<N>(&q[v][s]);
            EACH(j, TOK) to[j] = dot<VOCABULARY>(w.table[j], dlogits), put<N>(&dout[j][s], to[j]);
            EACH(i, WIDTH) {
                dk[i] = all<N * LANES>(w.head[0][i]) * to[0];
                EACH_FROM(1, j, TOK) dk[i] = fma(all<N * LANES>(w.head[j][i]), to[j], dk[i]);
                its[i] = at<N>(&k[i][s]);
            }
            mean = dot<WIDTH>(dk, its) * all<N * LANES>(1.0f / WIDTH);
            EACH(i, WIDTH) {
                dk[i] = at<N>(&s2[s]) * (dk[i] - its[i] * mean);
                put<N>(&dy[i][s], dk[i]);
            }
            W pulled[FFN], dh[WIDTH];
            EACH(f, FFN) {
                float column[WIDTH];
                EACH(i, WIDTH) column[i] = w.fc2[i][f];
                pulled[f] = dot<WIDTH>(column, dk) * at<N>(&slope[f][s]);
                put<N>(&dz[f][s], pulled[f]);
            }
            EACH(i, WIDTH) {
                dh[i] = all<N * LANES>(w.fc1[0][i]) * pulled[0];
                EACH_FROM(1, f, FFN) dh[i] = fma(all<N * LANES>(w.fc1[f][i]), pulled[f], dh[i]);
                its[i] = at<N>(&h[i][s]);
            }
            mean = dot<WIDTH>(dh, its) * all<N * LANES>(1.0f / WIDTH);
            EACH(o, WRITES) pull[o] = all<N * LANES>(0.0f);
            EACH(i, WIDTH) {
                const W d = fma(at<N>(&s1[s]), dh[i] - its[i] * mean, dk[i]);
                EACH(o, WRITES) pull[o] = fma(all<N * LANES>(w.write[i][o]), d, pull[o]);
                put<N>(&dx[i][s], d);
            }
            EACH(o, WRITES) put<N>(&dc[o][a], pull[o]);
        END
    }

    // Towards the weights after the FFN's values. Sums are held in registers while answers go by.
    APART void pull_out(Near& __restrict g) {
        V head[TOK][WIDTH], fc2[WIDTH][FFN];
        copy(head, g.head), copy(fc2, g.fc2);
        EACH(s, STAGE) {
            EACH(i, WIDTH) {
                EACH(j, TOK) head[j][i] = fma(dout[j][s], k[i][s], head[j][i]);
                EACH(f, FFN) fc2[i][f] = fma(dy[i][s], e[f][s], fc2[i][f]);
            }
        }
        copy(g.head, head), copy(g.fc2, fc2);
    }

    // Towards the weights before them.
    APART void pull_in(Near& __restrict g, Far& __restrict far, const Stored (*c)[ANSWERS]) {
        V fc1[FFN][WIDTH], write[WIDTH][WRITES];
        copy(fc1, g.fc1), copy(write, g.write);
        EACH(s, STAGE) {
            const int a = first + s;
            EACH(i, WIDTH) {
                EACH(f, FFN) fc1[f][i] = fma(dz[f][s], h[i][s], fc1[f][i]);
                EACH(o, WRITES) write[i][o] = fma(dx[i][s], get(c[o][a]), write[i][o]);
            }
            EACH(i, POS) far.positions[i][a] += dx[TOK + i][s];
        }
        copy(g.fc1, fc1), copy(g.write, write);
#if BIAS
        EACH(s, STAGE) {
            EACH(i, WIDTH) g.fc2_bias[i] += dy[i][s];
            EACH(f, FFN) g.fc1_bias[f] += dz[f][s];
        }
#endif
    }

    // Towards the table of tokens, which is read both as an input and as an output.
    APART void pull_table(Near& __restrict g, const Token* block) {
        EACH(j, TOK) {
            V sums[VOCABULARY];
            EACH(v, VOCABULARY) sums[v] = g.table[j][v];
            EACH(s, STAGE) {
                ALL(v, VOCABULARY) sums[v] = fma(q[v][s], out[j][s], sums[v]);
                spread(sums, of(block, FIRST + first + s), dx[j][s]);
            }
            EACH(v, VOCABULARY) g.table[j][v] = sums[v];
        }
    }
};
#undef EACH_ANSWER
#undef END
