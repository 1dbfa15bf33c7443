// The low_rank family from its wide tensors on: everything that depends on the problem, and its gradient. The wide tensors
// are those of `expand` (forward.py), in its order; with LAYER, what reads a norm has a last column, its bias.
#pragma once

#include "kernel.h"

#ifndef VOCABULARY
#define VOCABULARY 14
#endif
constexpr int BLOCKS_KEPT = 1;  // of tokens, where they are made block by block
constexpr int COLUMNS = WIDTH + LAYER, SEEN = VALUES ? 2 * RANK : RANK;
constexpr float EPS = LAYER ? 1e-5f : 1e-8f;
constexpr float BOUND = 30;  // of scores whose exponentials are taken as they are: far from float's ends

#include "linear.h"
#include "stage_loss.h"

struct Wide {
    float tokens[VOCABULARY][WIDTH], positions[POSITIONS][WIDTH];
    float queries[RANK][COLUMNS], reads[SEEN][COLUMNS], write[WIDTH][RANK];  // reads: keys, then values
    Linear<float, FFN, COLUMNS, INNER> fc1;
    Linear<float, WIDTH, FFN, INNER> fc2;
    float head[VOCABULARY][COLUMNS];
};
constexpr int SIZE = sizeof(Wide) / sizeof(float);

// The gradient's sums, a lane each for problems, or tokens; the sum over lanes is what is wanted.
struct Sums {
    Stored positions[POSITIONS][WIDTH], queries[RANK][COLUMNS], reads[SEEN][COLUMNS], write[WIDTH][RANK];
    Linear<Stored, FFN, COLUMNS, INNER> fc1;
    Linear<Stored, WIDTH, FFN, INNER> fc2;
    Stored head[VOCABULARY][COLUMNS];
};

#include "kernel_inputs.h"

#include "kernel_attention.h"

#include "kernel_answer.h"

// What a seed has of its own: its working memory, and its sums.
struct Room {
    Inputs inputs;
    Attention attention;
    Stored dstream[ANSWERS][WIDTH], dqueries[ANSWERS][RANK];  // the gradients of a block's inputs
};
typedef Sums Far;

// The answers of a stage through the model, and with TRAIN back. Returns their losses.
template <bool TRAIN>
ROUTINE V solve(const Wide& __restrict w, Room& room, Answers& k, const Token* block, int first, const Aim& aim, Sums& g) {
    const Inputs& inputs = room.inputs;
    EACH(s, STAGE) {
        const int a = first + s;
        const I here = of(block, FIRST + a);
        EACH(r, RANK) k.query[s][r] = at_token(inputs.queries[a][r], here);
        EACH(i, WIDTH) k.stream[s][i] = at_token(inputs.stream[a][i], here);
        room.attention.forward(inputs, block, a, s, k.query[s], k.channels[s]);
    }
    k.forward(w);
    const V loss = judge<TRAIN>(k.logits, k.dlogits, block, first, aim);
    if (!TRAIN) return loss;
#if THREADS
    V dstream[STAGE][WIDTH], dqueries[STAGE][RANK];
#else
    auto& dstream = room.dstream;
    auto& dqueries = room.dqueries;
#endif
    k.backward(w, dstream);
    EACH(s, STAGE)
        room.attention.backward(inputs, block, first + s, s, k.query[s], k.channels[s], k.dchannels[s], dqueries[s]);
#if THREADS
    EACH(i, WIDTH) room.dstream[first][i] = dstream[0][i];
    EACH(r, RANK) room.dqueries[first][r] = dqueries[0][r];
#endif
    k.add_to(g, dstream);
    return loss;
}

// The sums over lanes, of all that `inputs` has not summed.
INLINE void finish(Far& sums, Wide& gradient) { total_all<Stored>(sums, gradient.positions); }

#include "stages.h"
