// Attention of a block's answer positions, one after the other, a head at a time; all heads read the same keys.
#pragma once

struct Attention {
    Stored dreads[POSITIONS][SEEN], weights[STAGE][HEADS][POSITIONS];
    Stored inverses[STAGE][HEADS];  // weights are to be multiplied by the latter
#if !THREADS
    V reads[POSITIONS][SEEN];
    INLINE_MEMBER V read(const Inputs&, const Token*, int t, int c) const { return reads[t][c]; }
#else
    INLINE_MEMBER V read(const Inputs& inputs, const Token* block, int t, int c) const { return inputs.read(block, t, c); }
#endif

    template <bool TRAIN> void begin(const Inputs& inputs, const Token* block) {
        for (int t = 0; t < POSITIONS; t++) EACH(c, SEEN) {
#if !THREADS
            reads[t][c] = inputs.read(block, t, c);
#endif
            if (TRAIN) dreads[t][c] = one(0);
        }
    }

    INLINE_MEMBER V score(const Inputs& inputs, const Token* block, const V* query, int t) const {
        V sum = query[0] * read(inputs, block, t, 0);
        EACH_FROM(1, c, HEAD) sum = fma(query[c], read(inputs, block, t, c), sum);
        return sum;
    }

    // What answer a, at place s of its stage, reads with head h. Where a score may be large, the largest is taken off all.
    void forward(const Inputs& inputs, const Token* block, int a, int s, int h, const V* query, V* channels) {
        const int seen = FIRST + a + 1, first = HEAD + h * WIDTH;
        Stored* weight = weights[s][h];
        V high = one(0), sum = one(0), values[WIDTH], q[HEAD];
        EACH(c, HEAD) q[c] = query[c];
        if (!inputs.bounded) {
            high = one(-3e38f);
            for (int t = 0; t < seen; t++) high = above(high, score(inputs, block, q, t));
        }
        EACH(i, WIDTH) values[i] = one(0);
        for (int t = 0; t < seen; t++) {
            const V its = exponential(score(inputs, block, q, t) - high);
            weight[t] = its;
            sum += its;
            EACH(i, WIDTH) values[i] = fma(its, read(inputs, block, t, first + i), values[i]);
        }
        const V inverse = one(1) / sum;
        inverses[s][h] = inverse;
        EACH(i, WIDTH) channels[i] = values[i] * inverse;
    }

    // From the gradient of what was read, that of the query, of keys and of values. A softmax takes off every weight's
    // pull the mean of all, which is what was read times its gradient.
    void backward(const Inputs& inputs, const Token* block, int a, int s, int h, const V* query, const V* channels,
                  const V* dchannels, V* dquery) {
        const int seen = FIRST + a + 1, first = HEAD + h * WIDTH;
        const Stored* weight = weights[s][h];
        const V inverse = inverses[s][h];
        V pull[WIDTH], q[HEAD], dq[HEAD], mean = channels[0] * dchannels[0];
        EACH_FROM(1, i, WIDTH) mean = fma(channels[i], dchannels[i], mean);
        mean = -(mean * inverse);
        EACH(i, WIDTH) pull[i] = dchannels[i] * inverse;
        EACH(c, HEAD) dq[c] = one(0), q[c] = query[c];
        for (int t = 0; t < seen; t++) {
            const V its = weight[t];
            V d = mean;
            EACH(i, WIDTH) d = fma(pull[i], read(inputs, block, t, first + i), d);
            d *= its;
            EACH(c, HEAD) {
                dq[c] = fma(d, read(inputs, block, t, c), dq[c]);
                dreads[t][c] = fma(d, q[c], get(dreads[t][c]));
            }
            EACH(i, WIDTH) dreads[t][first + i] = fma(its, pull[i], get(dreads[t][first + i]));
        }
        EACH(c, HEAD) dquery[c] = dq[c];
    }
};
