// Attention that differs by problem: RMSNorm's scale depends on the token at a position, and the scores with it.
#pragma once

struct Attention {
    Stored c[WRITES][ANSWERS], dchannels[WRITES][ANSWERS];
    Stored scale[POSITIONS], values[READS][POSITIONS];
#if THREADS  // which works weights out again, an answer's: the others would have no place
    Stored weights[1][1][POSITIONS], sums[HEADS][ANSWERS], highs[HEADS][ANSWERS];
    Stored dscale[POSITIONS], dvalues[READS][POSITIONS], pulls[POSITIONS];
#else
    V weights[HEADS][ANSWERS][POSITIONS], sums[HEADS][ANSWERS];  // weights to be multiplied by the latter
#endif

    // Where no score of an answer can be larger, weights are taken as they are: e^60 and e^-60 are far from float's
    // ends, and what is the largest need not be looked for.
    bool small[HEADS][ANSWERS];
    float top[POSITIONS];

    void begin(const Wide& w) {
        EACH_SHARED(t, POSITIONS) {
            top[t] = 0;
            for (int v = 0; v < VOCABULARY; v++) top[t] = w.scale[t][v] > top[t] ? w.scale[t][v] : top[t];
        }
        meet();
        EACH_SHARED(n, HEADS * ANSWERS) {
            const int head = n / ANSWERS, a = n % ANSWERS;
            bool is_small = true;
            for (int t = 0; t <= FIRST + a; t++)
                is_small &= magnitude(w.attention[head][a][t]) * top[t] * top[FIRST + a] <= 60;
            small[head][a] = is_small;
        }
        meet();
    }

    Stored (*dc(int))[ANSWERS] { return dchannels; }

    template <bool TRAIN> void forward(const Wide& __restrict w, const Tables& tables, const Token* block) {
        for (int t = 0; t < POSITIONS; t++) {
            const I token = of(block, t);
            V its = tables.scale(t)(token);
            scale[t] = its;
            EACH(r, READS) values[r][t] = tables.values(r)(token) * its;
        }
        EACH(o, WRITES) EACH(a, ANSWERS) c[o][a] = one(0);
        for (int head = 0; head < HEADS; head++)
            for (int a = 0; a < ANSWERS; a++) attend<TRAIN>(w.attention[head][a], head, a);
    }

    // What answer a of a head reads, into its channels. Without TRAIN nobody needs the weights again.
    template <bool TRAIN> APART void attend(const float* __restrict form, int head, int a) {
        Stored* __restrict weight = weights[TRAIN && !THREADS ? head : 0][TRAIN && !THREADS ? a : 0];
        const int seen = FIRST + a + 1;
        V mine = scale[FIRST + a], high = one(0), sum = one(0), read[CHANNELS];
        if (!small[head][a]) {
            high = one(-3e38f);
            for (int t = 0; t < seen; t++) high = above(high, one(form[t]) * mine * get(scale[t]));
        }
#if THREADS
        highs[head][a] = high;
#endif
        EACH(i, CHANNELS) read[i] = one(0);
        for (int t = 0; t < seen; t++) {
            V its = exponential(one(form[t]) * mine * get(scale[t]) - high);
            if (TRAIN && !THREADS) weight[t] = its;
            sum += its;
            EACH(i, CHANNELS) read[i] = fma(its, get(values[head * CHANNELS + i][t]), read[i]);
        }
        V inverse = one(1) / sum;
        sums[head][a] = inverse;
        EACH(i, CHANNELS) {
            Stored& to = c[written(head * CHANNELS + i)][a];
            to = fma(read[i], inverse, get(to));
        }
    }

    void backward(const Wide& __restrict w, const Tables& tables, const Token* block, int, bool, Far& far, Wide&) {
#if !THREADS
        V dscale[POSITIONS], dvalues[READS][POSITIONS];
#endif
        for (int t = 0; t < POSITIONS; t++) {
            dscale[t] = one(0);
            EACH(r, READS) dvalues[r][t] = one(0);
        }
        for (int head = 0; head < HEADS; head++)
            for (int a = 0; a < ANSWERS; a++) pull(w, far, head, a, dscale, dvalues);
        for (int t = 0; t < POSITIONS; t++) {
            const I token = of(block, t);
            V pulled = dscale[t];
            EACH(r, READS) {
                const V d = dvalues[r][t];
                pulled = fma(d, tables.values(r)(token), pulled);
                spread(far.values[r], token, d * get(scale[t]));
            }
            spread(far.scale[t], token, pulled);
        }
    }

    // The gradient through answer a of a head: towards its form, the scales and the values of what it sees.
    APART void pull(const Wide& __restrict w, Far& __restrict far, int head, int a, Stored* __restrict dscale,
                    Stored (*__restrict dvalues)[POSITIONS]) {
#if !THREADS
        V pulls[POSITIONS];
#endif
        Stored* weight = weights[THREADS ? 0 : head][THREADS ? 0 : a];
        const int seen = FIRST + a + 1;
        V mine = scale[FIRST + a], share = sums[head][a], dread[CHANNELS], dmine = one(0), common = one(0);
        EACH(i, CHANNELS) dread[i] = get(dchannels[written(head * CHANNELS + i)][a]) * share;
        for (int t = 0; t < seen; t++) {
#if THREADS
            weight[t] = exponential(one(w.attention[head][a][t]) * mine * get(scale[t]) - get(highs[head][a]));
#endif
            V d = one(0), its = weight[t];
            EACH(i, CHANNELS) {
                Stored& to = dvalues[head * CHANNELS + i][t];
                d = fma(dread[i], get(values[head * CHANNELS + i][t]), d);
                to = fma(its, dread[i], get(to));
            }
            pulls[t] = d;
            common = fma(its, d, common);
        }
        common *= share;
        for (int t = 0; t < seen; t++) {
            V dscore = get(weight[t]) * (get(pulls[t]) - common), form = one(w.attention[head][a][t]);
            Stored& to = far.attention[head][a][t];
            to = fma(dscore * mine, get(scale[t]), get(to));
            dscale[t] = fma(dscore * mine, form, get(dscale[t]));
            dmine = fma(dscore * form, get(scale[t]), dmine);
        }
        dscale[FIRST + a] += dmine;
    }
};
