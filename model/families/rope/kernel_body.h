// The rope family from its wide tensors on: everything that depends on the problem, and its gradient. The wide tensors are
// those of `expand` (forward.py), in its order.
#pragma once

#include "kernel.h"

#ifndef VOCABULARY
#define VOCABULARY 10
#endif
constexpr int BLOCKS_KEPT = 1;  // of tokens, where they are made block by block
constexpr int HEAD = 4, ROWS = POSITIONAL ? POSITIONS : 1;  // ROWS: positions whose inputs differ
constexpr int QUERIES = HEADS * HEAD, VALUES = HEADS * WIDTH, SEEN = HEAD + VALUES;
constexpr float EPS = 1e-6f;
constexpr float BOUND = 30;  // of scores whose exponentials are taken as they are: far from float's ends

#include "linear.h"
#include "stage_loss.h"

struct Wide {
    float tokens[VOCABULARY][WIDTH], queries[QUERIES][WIDTH], query_norm[HEAD], keys[HEAD][WIDTH], key_norm[HEAD];
    float values[VALUES][WIDTH], gate[FFN][WIDTH], up[FFN][WIDTH], down[WIDTH][FFN], head[VOCABULARY][WIDTH];
    float turns[POSITIONS][HEAD];  // cosines, then sines, of a position's two angles
#if POSITIONAL
    float ramp[POSITIONS];
#endif
};
constexpr int SIZE = sizeof(Wide) / sizeof(float);

// The gradient's sums, a lane each for problems, or tokens; the sum over lanes is what is wanted.
struct Sums {
    Stored queries[QUERIES][WIDTH], query_norm[HEAD], keys[HEAD][WIDTH], key_norm[HEAD];
    Stored values[VALUES][WIDTH], gate[FFN][WIDTH], up[FFN][WIDTH], down[WIDTH][FFN], head[VOCABULARY][WIDTH];
};

#include "kernel_inputs.h"

#include "kernel_attention.h"

#include "kernel_answer.h"

// What a seed has of its own: its working memory, and its sums.
struct Room {
    Inputs inputs;
    Attention attention;
    Stored dstream[ANSWERS][WIDTH], dqueries[ANSWERS][QUERIES];  // the gradients of a block's inputs
};
typedef Sums Far;

// The answers of a stage through the model, and with TRAIN back. Returns their losses.
template <bool TRAIN>
ROUTINE V solve(const Wide& __restrict w, Room& room, Answers& k, const Token* block, int first, const Aim& aim, Sums& g) {
    const Inputs& inputs = room.inputs;
    EACH(s, STAGE) {
        const int a = first + s;
        const I here = of(block, FIRST + a);
        EACH(c, QUERIES) k.query[s][c] = at_token(inputs.queries[a][c], here);
        EACH(i, WIDTH) k.stream[s][i] = at_token(inputs.stream[ROWS == 1 ? 0 : FIRST + a][i], here);
        EACH(h, HEADS) {
            V* channels = k.channels[s] + h * WIDTH;
            room.attention.forward(inputs, block, a, s, h, k.query[s] + h * HEAD, channels);
            EACH(i, WIDTH) k.stream[s][i] += channels[i];
        }
    }
    k.forward(w);
    const V loss = judge<TRAIN>(k.logits, k.dlogits, block, first, aim);
    if (!TRAIN) return loss;
#if THREADS
    V dstream[STAGE][WIDTH], dqueries[STAGE][QUERIES];
#else
    auto& dstream = room.dstream;
    auto& dqueries = room.dqueries;
#endif
    k.backward(w, dstream);
    EACH(s, STAGE) EACH(h, HEADS)
        room.attention.backward(inputs, block, first + s, s, h, k.query[s] + h * HEAD, k.channels[s] + h * WIDTH, dstream[s],
                                dqueries[s] + h * HEAD);
#if THREADS
    EACH(i, WIDTH) room.dstream[first][i] = dstream[0][i];
    EACH(c, QUERIES) room.dqueries[first][c] = dqueries[0][c];
#endif
    k.add_to(g);
    return loss;
}

// The sums over lanes, of all that `inputs` has not summed; the gradient of constants is 0.
INLINE void finish(Far& sums, Wide& gradient) {
    total_all<Stored>(sums, gradient.queries);
    float* const constants = &gradient.turns[0][0];
    EACH_SHARED(n, (int)((float*)(&gradient + 1) - constants)) constants[n] = 0;
}

#include "stages.h"
