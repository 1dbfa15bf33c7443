// Attention of one answer position after the other, forward and straight back: what it needs stays in the nearest cache.
#pragma once

struct Attention {
    V reads[POSITIONS][SEEN], dreads[POSITIONS][SEEN];
    V weight[POSITIONS], inverse;  // weights, to be multiplied by the latter

    template <bool TRAIN> void begin(const Inputs& inputs, const int32_t* block) {
        for (int t = 0; t < POSITIONS; t++) {
            I token = of(block, t);
            for (int c = 0; c < SEEN; c++) {
                reads[t][c] = at_token(inputs.reads[t][c], token);
                if (TRAIN) dreads[t][c] = one(0);
            }
        }
    }

    // What answer a reads, from its query. Where a score may be large, the largest is taken off all of them.
    void forward(int a, bool bounded, const V* query, V* channels) {
        const int seen = FIRST + a + 1;
        V high = one(0), sum = one(0), read[RANK];
        if (!bounded) {
            high = one(-3e38f);
            for (int t = 0; t < seen; t++) high = above(high, score(query, t));
        }
        for (int r = 0; r < RANK; r++) read[r] = one(0);
        for (int t = 0; t < seen; t++) {
            V its = exponential(score(query, t) - high);
            weight[t] = its;
            sum += its;
            for (int r = 0; r < RANK; r++) read[r] = fma(its, reads[t][SEEN - RANK + r], read[r]);
        }
        inverse = one(1) / sum;
        for (int r = 0; r < RANK; r++) channels[r] = read[r] * inverse;
    }

    static V dot(const V* x, const V* y) {
        V s = x[0] * y[0];
        for (int r = 1; r < RANK; r++) s = fma(x[r], y[r], s);
        return s;
    }

    V score(const V* query, int t) { return dot(query, reads[t]); }

    // From the gradient of what answer a reads, that of its query, of keys and of values. A softmax takes off every
    // weight's pull the mean of all, which is what was read times its gradient.
    void backward(int a, const V* query, const V* channels, const V* dchannels, V* dquery) {
        const int seen = FIRST + a + 1;
        V pull[RANK], q[RANK], dq[RANK], mean = -(dot(channels, dchannels) * inverse);
        for (int r = 0; r < RANK; r++) pull[r] = dchannels[r] * inverse, dq[r] = one(0), q[r] = query[r];
        for (int t = 0; t < seen; t++) {
            const V* key = reads[t];
            const V* value = reads[t] + SEEN - RANK;
            V its = weight[t], d = mean;
            for (int r = 0; r < RANK; r++) d = fma(pull[r], value[r], d);
            d *= its;
            for (int r = 0; r < RANK; r++) {
                dq[r] = fma(d, key[r], dq[r]);
                dreads[t][SEEN - RANK + r] = fma(its, pull[r], dreads[t][SEEN - RANK + r]);
                dreads[t][r] = fma(d, q[r], dreads[t][r]);
            }
        }
        for (int r = 0; r < RANK; r++) dquery[r] = dq[r];
    }
};
