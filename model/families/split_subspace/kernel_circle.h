// Attention on a circle: its weights do not depend on the problem, so a position costs a multiply-add an answer.
// Towards the weights the gradient is a sum over problems, taken for all of a chunk's blocks at once, so that its
// accumulators stay in registers.
#pragma once

// Blocks whose gradients a CPU takes at once: a chain of sums would wait for itself.
constexpr int ABREAST = THREADS ? 1 : 4;

struct Attention {
    Stored c[WRITES][ANSWERS];
    Stored grads[CHUNK][WRITES][ANSWERS];

    void begin(const Wide&) {}
    Stored (*dc(int block))[ANSWERS] { return grads[block % CHUNK]; }

    template <bool TRAIN> APART void forward(const Wide& __restrict w, const Tables& tables, const Token* block) {
        EACH(o, WRITES) EACH(a, ANSWERS) c[o][a] = one(0);
        for (int r = 0; r < READS; r++) {
            const auto& weights = w.attention[r / CHANNELS];
            V sums[ANSWERS];
            EACH(a, ANSWERS) sums[a] = c[written(r)][a];
            for (int t = 0; t <= FIRST; t++) see<0>(weights, t, tables.values(r)(of(block, t)), sums);
            see_later<1>(weights, tables.values(r), block, sums);
            EACH(a, ANSWERS) c[written(r)][a] = sums[a];
        }
    }

    // What the answers from START on, all that see position t, take from it.
    template <int START> INLINE void see(const float (&weights)[ANSWERS][POSITIONS], int t, V x, V* sums) {
        ALL_FROM(START, a, ANSWERS) sums[a] = fma(one(weights[a][t]), x, sums[a]);
    }
    template <int START>
    INLINE void see_later(const float (&weights)[ANSWERS][POSITIONS], const Table& values, const Token* block, V* sums) {
        if constexpr (START < ANSWERS) {
            see<START>(weights, FIRST + START, values(of(block, FIRST + START)), sums);
            see_later<START + 1>(weights, values, block, sums);
        }
    }

    // The gradient of a chunk's blocks, when `block`, their last, is there.
    INLINE_MEMBER void backward(const Wide& __restrict w, const Tables& tables, const Token* tokens, int block, bool last,
                                Far& __restrict far, Wide& gradient) {
        const int place = block % CHUNK, count = place + 1;
        if (!last && count < CHUNK) return;
        const Token* blocks = block_of(tokens, -place);
        for (int head = 0; head < HEADS; head++) {
            for (int t = 0; t <= FIRST; t++) pull<0>(w, tables, blocks, count, head, t, far, gradient);
            pull_later<1>(w, tables, blocks, count, head, far, gradient);
        }
    }
    template <int START>
    void pull_later(const Wide& w, const Tables& tables, const Token* blocks, int count, int head, Far& far,
                    Wide& gradient) {
        if constexpr (START < ANSWERS) {
            pull<START>(w, tables, blocks, count, head, FIRST + START, far, gradient);
            pull_later<START + 1>(w, tables, blocks, count, head, far, gradient);
        }
    }

    // The gradient that position t, which answers from START on see, has through a head: towards its weights, and its
    // tokens' values. Loops that are written out leave their sums in registers.
    template <int START>
    APART void pull(const Wide& __restrict w, const Tables& tables, const Token* blocks, int count, int head, int t,
                    Far& __restrict far, Wide& gradient) {
#if SUMS_OF_CHUNK  // all blocks are one chunk: nothing was added before, and nothing will be
        static_assert(ANSWERS <= LANES);  // each thread is left with the sum of the answer of its number
        V sums[LANES];
        ALL(a, LANES) sums[a] = one(0);
#else
        V sums[ANSWERS];
        ALL_FROM(START, a, ANSWERS) sums[a] = far.attention[head][a][t];
#endif
        for (int r = head * CHANNELS; r < (head + 1) * CHANNELS; r++) {
            V dx[CHUNK];
            int b = 0;
            for (; b + ABREAST <= count; b += ABREAST)
                pull_blocks<START, ABREAST>(w, tables, blocks, r, t, b, sums, dx, far);
            for (; b < count; b++) pull_blocks<START, 1>(w, tables, blocks, r, t, b, sums, dx, far);
            if (THREADS) continue;
            V values[VOCABULARY];
            ALL(v, VOCABULARY) values[v] = far.values[r][v];
            for (b = 0; b < count; b++) spread(values, of(block_of(blocks, b), t), dx[b]);
            ALL(v, VOCABULARY) far.values[r][v] = values[v];
        }
#if SUMS_OF_CHUNK
        const float sum = total_by_lane(sums);
        if (lane_of() < ANSWERS) gradient.attention[head][lane_of()][t] = sum;
#else
        ALL_FROM(START, a, ANSWERS) far.attention[head][a][t] = sums[a];
#endif
    }

    // Of N blocks from block b on: their part of the weights' gradient added to `sums`, and that of the values into dx;
    // a thread adds it to the values at once, since it reads one place of them.
    template <int START, int N>
    INLINE_MEMBER void pull_blocks(const Wide& __restrict w, const Tables& tables, const Token* blocks, int r, int t, int b,
                                   V* sums, V* dx, Far& far) {
        V x[N], its[N];
        ALL(n, N) x[n] = tables.values(r)(of(block_of(blocks, b + n), t)), its[n] = one(0);
        ALL_FROM(START, a, ANSWERS) {
            const V weight = one(w.attention[r / CHANNELS][a][t]);
            ALL(n, N) {
                const V dc = grads[b + n][written(r)][a];
                sums[a] = fma(x[n], dc, sums[a]);
                its[n] = fma(weight, dc, its[n]);
            }
        }
        ALL(n, N) {
            if (THREADS) spread(far.values[r], of(block_of(blocks, b + n), t), its[n]);
            else dx[b + n] = its[n];
        }
    }
};
