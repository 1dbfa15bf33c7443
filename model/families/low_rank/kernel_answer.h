// The block after attention: from an answer position's input to logits and back.
#pragma once

// What a block's answers keep: for the way back, and for the gradient of the matrices.
struct Answers {
    V stream[ANSWERS][WIDTH], channels[ANSWERS][RANK], dstream[ANSWERS][WIDTH], dchannels[ANSWERS][RANK];
    V before_ffn[ANSWERS][COLUMNS], hidden[ANSWERS][FFN], slope[ANSWERS][FFN], dhidden[ANSWERS][FFN];
    V before_head[ANSWERS][COLUMNS], logits[ANSWERS][VOCABULARY], dlogits[ANSWERS][VOCABULARY];
    V left[ANSWERS][WIDTH], dleft[ANSWERS][WIDTH], scale[2][ANSWERS];
    Between<INNER> fc1, fc2;

#define EACH_ANSWER for (int a = 0; a < ANSWERS; a++)

    // What was read is written to the residual, the FFN reads it, bends it and leaves its share, and the head reads.
    void forward(const Wide& __restrict w) {
        EACH_ANSWER {
            V x[WIDTH];
            times(w.write, channels[a], x);
            for (int i = 0; i < WIDTH; i++) stream[a][i] += x[i];
            scale[0][a] = norm(stream[a], before_ffn[a]);
        }
        EACH_ANSWER times(w.fc1, before_ffn[a], fc1.it[a], hidden[a]);
        EACH_ANSWER
            for (int f = 0; f < FFN; f++) gelu(hidden[a][f], hidden[a][f], slope[a][f]);
        EACH_ANSWER {
            times(w.fc2, hidden[a], fc2.it[a], left[a]);
            for (int i = 0; i < WIDTH; i++) left[a][i] += stream[a][i];
        }
        EACH_ANSWER scale[1][a] = norm(left[a], before_head[a]);
        EACH_ANSWER times(w.head, before_head[a], logits[a]);
    }

    // The loss, and the gradient of logits. `share`: what a problem's loss counts, 0 where a lane is empty.
    template <bool TRAIN> V judge(const int32_t* targets, V share) {
        V loss = one(0);
        EACH_ANSWER {
            const V* its = logits[a];
            I target = of(targets, a);
            V high = its[0], sum = one(0), right = its[0], q[VOCABULARY];
            for (int v = 1; v < VOCABULARY; v++) {
                high = above(high, its[v]);
                right = select(target == all<LANES>(v), its[v], right);
            }
            for (int v = 0; v < VOCABULARY; v++) sum += q[v] = exponential(its[v] - high);
            V inverse = share / sum;
            for (int v = 0; TRAIN && v < VOCABULARY; v++) {
                V d = q[v] * inverse;
                dlogits[a][v] = select(target == all<LANES>(v), d - share, d);
            }
            loss += logarithm(sum) + (high - right);
        }
        return loss;
    }

    void backward(const Wide& __restrict w) {
        V dh[ANSWERS][COLUMNS];
        EACH_ANSWER times_back(w.head, dlogits[a], dh[a]);
        EACH_ANSWER norm_back(before_head[a], scale[1][a], dh[a], dleft[a]);
        EACH_ANSWER {
            times_back(w.fc2, dleft[a], fc2.d[a], dhidden[a]);
            for (int f = 0; f < FFN; f++) dhidden[a][f] *= slope[a][f];
        }
        EACH_ANSWER times_back(w.fc1, dhidden[a], fc1.d[a], dh[a]);
        EACH_ANSWER {
            V dx[WIDTH];
            norm_back(before_ffn[a], scale[0][a], dh[a], dx);
            for (int i = 0; i < WIDTH; i++) dstream[a][i] = dx[i] + dleft[a][i];
            times_back(w.write, dstream[a], dchannels[a]);
        }
    }

    void add_to(Gradient& g) const {
        add_products(g.write, dstream, channels);
        add_products(g.fc1, dhidden, fc1, before_ffn);
        add_products(g.fc2, dleft, fc2, hidden);
        add_products(g.head, dlogits, before_head);
    }
};
