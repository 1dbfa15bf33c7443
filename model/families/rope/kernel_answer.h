// The block after attention: from an answer position's residual to logits and back.
#pragma once

// x / (1 + exp -x) and its slope.
INLINE void silu(V x, V& value, V& slope) {
    const V share = one(1) / (one(1) + exponential(below(one(80), -x)));
    value = x * share;
    slope = fma(value, one(1) - share, share);
}

// What a stage's answers have: for the way back, and for the gradient of the matrices.
struct Answers {
    V query[STAGE][QUERIES], channels[STAGE][VALUES], stream[STAGE][WIDTH], left[STAGE][WIDTH], dleft[STAGE][WIDTH];
    V before_mlp[STAGE][WIDTH], gates[STAGE][FFN], slopes[STAGE][FFN], hidden[STAGE][FFN], units[STAGE][FFN];
    V dgates[STAGE][FFN], dhidden[STAGE][FFN], scale[2][STAGE];
    V before_head[STAGE][WIDTH], logits[STAGE][VOCABULARY], dlogits[STAGE][VOCABULARY];

#define EACH_ANSWER EACH(s, STAGE)

    void forward(const Wide& __restrict w) {
        EACH_ANSWER scale[0][s] = norm<WIDTH>(stream[s], before_mlp[s]);
        EACH_ANSWER {
            V before[FFN];
            times(w.gate, before_mlp[s], before), times(w.up, before_mlp[s], hidden[s]);
            EACH(f, FFN) silu(before[f], gates[s][f], slopes[s][f]);
            EACH(f, FFN) units[s][f] = gates[s][f] * hidden[s][f];
        }
        EACH_ANSWER {
            times(w.down, units[s], left[s]);
            EACH(i, WIDTH) left[s][i] += stream[s][i];
        }
        EACH_ANSWER scale[1][s] = norm<WIDTH>(left[s], before_head[s]);
        EACH_ANSWER times(w.head, before_head[s], logits[s]);
    }

    void backward(const Wide& __restrict w, V (*__restrict dstream)[WIDTH]) {
        EACH_ANSWER {
            V dh[WIDTH];
            times_back(w.head, dlogits[s], dh);
            norm_back<WIDTH>(before_head[s], scale[1][s], dh, dleft[s]);
        }
        EACH_ANSWER {
            V dunits[FFN];
            times_back(w.down, dleft[s], dunits);
            EACH(f, FFN) {
                dgates[s][f] = dunits[f] * hidden[s][f] * slopes[s][f];
                dhidden[s][f] = dunits[f] * gates[s][f];
            }
        }
        EACH_ANSWER {
            V dh[WIDTH], more[WIDTH];
            times_back(w.gate, dgates[s], dh), times_back(w.up, dhidden[s], more);
            EACH(i, WIDTH) dh[i] += more[i];
            norm_back<WIDTH>(before_mlp[s], scale[0][s], dh, more);
            EACH(i, WIDTH) dstream[s][i] = more[i] + dleft[s][i];
        }
    }

    void add_to(Sums& g) const {
        add_products(g.gate, dgates, before_mlp);
        add_products(g.up, dhidden, before_mlp);
        add_products(g.down, dleft, units);
        add_products(g.head, dlogits, before_head);
    }
};
