// Attention on a circle: its weights do not depend on the problem, so a position costs a multiply-add an answer.
// Towards the weights the gradient is a sum over problems, taken for all of a chunk's blocks at once, so that its
// accumulators stay in registers.
#pragma once

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
            V sums[ANSWERS], later[ANSWERS];
            for (int a = 0; a < ANSWERS; a++) sums[a] = c[written(r)][a];
            for (int t = 0; t <= FIRST; t++) {
                V x = tables.values[r](of(block, t));
#pragma GCC unroll 12
                for (int a = 0; a < ANSWERS; a++) sums[a] = fma(one(weights[a][t]), x, sums[a]);
            }
            for (int a = 1; a < ANSWERS; a++) {
                later[a] = tables.values[r](of(block, FIRST + a));
                for (int b = 1; b <= a; b++) sums[a] = fma(one(weights[a][FIRST + b]), later[b], sums[a]);
            }
            for (int a = 0; a < ANSWERS; a++) c[written(r)][a] = sums[a];
        }
    }

    void backward(const Wide& w, const Tables& tables, const int32_t* block, Sums& g) {
        blocks[filled++] = block;
        if (filled == CHUNK) flush(w, tables, g);
    }

    void finish(const Wide& w, const Tables& tables, const int32_t*, int, Sums& g) { flush(w, tables, g); }

    void flush(const Wide& __restrict w, const Tables& tables, Sums& __restrict g) {
        for (int r = 0; r < READS; r++) {
            for (int t = 0; t < POSITIONS; t++) pull(w, tables, g, r, t);
        }
        filled = 0;
    }

    // The gradient that position t has through read r: towards its weights, and its tokens' values.
    APART void pull(const Wide& __restrict w, const Tables& tables, Sums& __restrict g, int r, int t) {
        const int head = r / CHANNELS, start = t > FIRST ? t - FIRST : 0;
        V sums[ANSWERS], values[VOCABULARY];
        for (int a = 0; a < ANSWERS; a++) sums[a] = g.attention[head][a][t];
        for (int v = 0; v < VOCABULARY; v++) values[v] = g.values[r][v];
        for (int b = 0; b < filled; b++) {
            const V* dc = grads[b][written(r)];
            I token = of(blocks[b], t);
            V x = tables.values[r](token), dx = one(0);
            if (start == 0) {
#pragma GCC unroll 12
                for (int a = 0; a < ANSWERS; a++) {
                    sums[a] = fma(x, dc[a], sums[a]);
                    dx = fma(one(w.attention[head][a][t]), dc[a], dx);
                }
            } else {
                for (int a = start; a < ANSWERS; a++) {
                    sums[a] = fma(x, dc[a], sums[a]);
                    dx = fma(one(w.attention[head][a][t]), dc[a], dx);
                }
            }
            spread(values, token, dx);
        }
        for (int a = start; a < ANSWERS; a++) g.attention[head][a][t] = sums[a];
        for (int v = 0; v < VOCABULARY; v++) g.values[r][v] = values[v];
    }
};
