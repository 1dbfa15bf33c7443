// Attention that differs by problem: RMSNorm's scale depends on the token at a position, and the scores with it.
#pragma once

struct Attention {
    V c[WRITES][ANSWERS], dc_[WRITES][ANSWERS];
    V scale[POSITIONS], values[READS][POSITIONS];
    V weights[HEADS][ANSWERS][POSITIONS], sums[HEADS][ANSWERS];  // weights to be multiplied by the latter

    // Where no score of an answer can be larger, weights are taken as they are: e^60 and e^-60 are far from float's
    // ends, and what is the largest need not be looked for.
    bool small[HEADS][ANSWERS];

    void begin(const Wide& w) {
        float top[POSITIONS];
        for (int t = 0; t < POSITIONS; t++) {
            top[t] = 0;
            for (int v = 0; v < VOCABULARY; v++) top[t] = w.scale[t][v] > top[t] ? w.scale[t][v] : top[t];
        }
        for (int head = 0; head < HEADS; head++) {
            for (int a = 0; a < ANSWERS; a++) {
                small[head][a] = true;
                for (int t = 0; t <= FIRST + a; t++)
                    small[head][a] &= __builtin_fabsf(w.attention[head][a][t]) * top[t] * top[FIRST + a] <= 60;
            }
        }
    }

    V (*dc())[ANSWERS] { return dc_; }

    template <bool TRAIN> void forward(const Wide& __restrict w, const Tables& tables, const int32_t* block) {
        for (int t = 0; t < POSITIONS; t++) {
            I token = of(block, t);
            scale[t] = tables.scale[t](token);
            for (int r = 0; r < READS; r++) values[r][t] = tables.values[r](token) * scale[t];
        }
        std::memset(c, 0, sizeof c);
        for (int head = 0; head < HEADS; head++)
            for (int a = 0; a < ANSWERS; a++) attend<TRAIN>(w.attention[head][a], head, a);
    }

    // What answer a of a head reads, into its channels. Without TRAIN nobody needs the weights again.
    template <bool TRAIN> APART void attend(const float* __restrict form, int head, int a) {
        V* __restrict weight = weights[TRAIN ? head : 0][TRAIN ? a : 0];
        const int seen = FIRST + a + 1;
        V mine = scale[FIRST + a], high = one(0), sum = one(0), read[CHANNELS];
        if (!small[head][a]) {
            high = one(-3e38f);
            for (int t = 0; t < seen; t++) high = above(high, one(form[t]) * mine * scale[t]);
        }
        for (int i = 0; i < CHANNELS; i++) read[i] = one(0);
        for (int t = 0; t < seen; t++) {
            V its = exponential(one(form[t]) * mine * scale[t] - high);
            if (TRAIN) weight[t] = its;
            sum += its;
            for (int i = 0; i < CHANNELS; i++) read[i] = fma(its, values[head * CHANNELS + i][t], read[i]);
        }
        V inverse = one(1) / sum;
        sums[head][a] = inverse;
        for (int i = 0; i < CHANNELS; i++) {
            V& to = c[written(head * CHANNELS + i)][a];
            to = fma(read[i], inverse, to);
        }
    }

    void backward(const Wide& __restrict w, const Tables& tables, const int32_t* block, Sums& __restrict g) {
        V dscale[POSITIONS], dvalues[READS][POSITIONS];
        for (int t = 0; t < POSITIONS; t++) {
            dscale[t] = one(0);
            for (int r = 0; r < READS; r++) dvalues[r][t] = one(0);
        }
        for (int head = 0; head < HEADS; head++) {
            for (int a = 0; a < ANSWERS; a++) pull(w, g, head, a, dscale, dvalues);
        }
        for (int t = 0; t < POSITIONS; t++) {
            I token = of(block, t);
            for (int r = 0; r < READS; r++) {
                dscale[t] = fma(dvalues[r][t], tables.values[r](token), dscale[t]);
                spread(g.values[r], token, dvalues[r][t] * scale[t]);
            }
            spread(g.scale[t], token, dscale[t]);
        }
    }

    // The gradient through answer a of a head: towards its form, the scales and the values of what it sees.
    APART void pull(const Wide& __restrict w, Sums& __restrict g, int head, int a, V* __restrict dscale,
              V (*__restrict dvalues)[POSITIONS]) {
        const V* weight = weights[head][a];
        const int seen = FIRST + a + 1;
        V mine = scale[FIRST + a], share = sums[head][a], dmine = one(0), common = one(0);
        V dread[CHANNELS], pulls[POSITIONS];
        for (int i = 0; i < CHANNELS; i++) dread[i] = dc_[written(head * CHANNELS + i)][a] * share;
        for (int t = 0; t < seen; t++) {
            V d = one(0), its = weight[t];
            for (int i = 0; i < CHANNELS; i++) {
                V& to = dvalues[head * CHANNELS + i][t];
                d = fma(dread[i], values[head * CHANNELS + i][t], d);
                to = fma(its, dread[i], to);
            }
            pulls[t] = d;
            common = fma(its, d, common);
        }
        common *= share;
        for (int t = 0; t < seen; t++) {
            V dscore = weight[t] * (pulls[t] - common), form = one(w.attention[head][a][t]);
            V& to = g.attention[head][a][t];
            to = fma(dscore * mine, scale[t], to);
            dscale[t] = fma(dscore * mine, form, dscale[t]);
            dmine = fma(dscore * form, scale[t], dmine);
        }
        dscale[FIRST + a] += dmine;
    }

    void finish(const Wide&, const Tables&, const int32_t*, int, Sums&) {}
};
