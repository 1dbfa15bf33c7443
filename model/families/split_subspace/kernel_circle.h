// Attention on a circle: its weights do not depend on the problem, so a position costs a multiply-add an answer.
// Towards the weights the gradient is a sum over problems, taken for all of a chunk's blocks at once, so that its
// accumulators stay in registers.
#pragma once

constexpr int ABREAST = 4;  // blocks whose gradients are taken at once: a chain of sums would wait for itself

struct Attention {
    V c[WRITES][ANSWERS];
    V grads[CHUNK][WRITES][ANSWERS];
    const int32_t* blocks[CHUNK];
    int filled;

    void begin(const Wide&) { filled = 0; }
    V (*dc())[ANSWERS] { return grads[filled]; }

    template <bool TRAIN> APART void forward(const Wide& __restrict w, const Tables& tables, const int32_t* block) {
        std::memset(c, 0, sizeof c);
        for (int r = 0; r < READS; r++) {
            const auto& weights = w.attention[r / CHANNELS];
            V sums[ANSWERS];
            for (int a = 0; a < ANSWERS; a++) sums[a] = c[written(r)][a];
            for (int t = 0; t <= FIRST; t++) see<0>(weights, t, tables.values[r](of(block, t)), sums);
            see_later<1>(weights, tables.values[r], block, sums);
            for (int a = 0; a < ANSWERS; a++) c[written(r)][a] = sums[a];
        }
    }

    // What the answers from START on, all that see position t, take from it.
    template <int START> INLINE void see(const float (&weights)[ANSWERS][POSITIONS], int t, V x, V* sums) {
#pragma GCC unroll 12
        for (int a = START; a < ANSWERS; a++) sums[a] = fma(one(weights[a][t]), x, sums[a]);
    }
    template <int START>
    INLINE void see_later(const float (&weights)[ANSWERS][POSITIONS], const Table& values, const int32_t* block, V* sums) {
        if constexpr (START < ANSWERS) {
            see<START>(weights, FIRST + START, values(of(block, FIRST + START)), sums);
            see_later<START + 1>(weights, values, block, sums);
        }
    }

    void backward(const Wide& w, const Tables& tables, const int32_t* block, Sums& g) {
        blocks[filled++] = block;
        if (filled == CHUNK) flush(w, tables, g);
    }

    void finish(const Wide& w, const Tables& tables, const int32_t*, int, Sums& g) { flush(w, tables, g); }

    void flush(const Wide& __restrict w, const Tables& tables, Sums& __restrict g) {
        for (int r = 0; r < READS; r++) {
            for (int t = 0; t <= FIRST; t++) pull<0>(w, tables, g, r, t);
            pull_later<1>(w, tables, g, r);
        }
        filled = 0;
    }
    template <int START> void pull_later(const Wide& w, const Tables& tables, Sums& g, int r) {
        if constexpr (START < ANSWERS) {
            pull<START>(w, tables, g, r, FIRST + START);
            pull_later<START + 1>(w, tables, g, r);
        }
    }

    // The gradient that position t, which answers from START on see, has through read r: towards its weights, and its
    // tokens' values. Loops that are written out leave their sums in registers.
    template <int START>
    APART void pull(const Wide& __restrict w, const Tables& tables, Sums& __restrict g, int r, int t) {
        const int head = r / CHANNELS;
        V sums[ANSWERS], values[VOCABULARY], dx[CHUNK];
#pragma GCC unroll 16
        for (int a = START; a < ANSWERS; a++) sums[a] = g.attention[head][a][t];
        int b = 0;
        for (; b + ABREAST <= filled; b += ABREAST) pull_blocks<START, ABREAST>(w, tables, grads, blocks, r, t, b, sums, dx);
        for (; b < filled; b++) pull_blocks<START, 1>(w, tables, grads, blocks, r, t, b, sums, dx);
#pragma GCC unroll 16
        for (int a = START; a < ANSWERS; a++) g.attention[head][a][t] = sums[a];
#pragma GCC unroll 16
        for (int v = 0; v < VOCABULARY; v++) values[v] = g.values[r][v];
        for (b = 0; b < filled; b++) spread(values, of(blocks[b], t), dx[b]);
#pragma GCC unroll 16
        for (int v = 0; v < VOCABULARY; v++) g.values[r][v] = values[v];
    }

    // Of N blocks from block b on: their part of the weights' gradient added to `sums`, and that of the values into dx.
    template <int START, int N>
    INLINE void pull_blocks(const Wide& __restrict w, const Tables& tables, const V (*grads)[WRITES][ANSWERS],
                            const int32_t* const* blocks, int r, int t, int b, V* sums, V* dx) {
        V x[N], its[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) x[n] = tables.values[r](of(blocks[b + n], t)), its[n] = one(0);
#pragma GCC unroll 12
        for (int a = START; a < ANSWERS; a++) {
            const V weight = one(w.attention[r / CHANNELS][a][t]);
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                const V dc = grads[b + n][written(r)][a];
                sums[a] = fma(x[n], dc, sums[a]);
                its[n] = fma(weight, dc, its[n]);
            }
        }
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) dx[b + n] = its[n];
    }
};
