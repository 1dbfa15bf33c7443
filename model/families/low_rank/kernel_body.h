// The low_rank family from its wide tensors on: everything that depends on the problem, and its gradient. The wide tensors
// are those of `expand` (forward.py), in its order; with LAYER, what reads a norm has a last column, its bias.
#pragma once

#include "kernel.h"

constexpr int VOCABULARY = 14;
constexpr int BLOCKS_KEPT = 1;  // of tokens, where they are made block by block
constexpr int COLUMNS = WIDTH + LAYER, SEEN = VALUES ? 2 * RANK : RANK;
constexpr float EPS = LAYER ? 1e-5f : 1e-8f;
constexpr float BOUND = 30;  // of scores whose exponentials are taken as they are: far from float's ends

#include "linear.h"

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
    const V loss = k.judge<TRAIN>(block, first, aim);
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

// Blocks of problems through the model, and with TRAIN back; `source` has a block's tokens. Returns the losses.
template <bool TRAIN, class Source>
ROUTINE V run(const Wide& w, const Source& source, int problems, Measures* m, Room& room, Sums& g, Wide& gradient,
              const Goal* goal, const Seen* seen) {
    LOCAL(Answers, k);
    V loss = one(0);
    room.inputs.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const Token* block = source(b);
        const I counted = first_lanes(problems - b * LANES);
        const Aim aim = aim_of(goal, b, counted, problems, ANSWERS, VOCABULARY);
        V block_loss = one(0);
        I exact = counted;
        room.attention.begin<TRAIN>(room.inputs, block);
        EACH_STAGE(first) {
            block_loss += solve<TRAIN>(w, room, k, block, first, aim, g);
            EACH(s, TRAIN ? 0 : STAGE) {
                see(seen, b * ANSWERS + first + s, VOCABULARY, k.logits[s]);
                if (first + s >= SUM_DIGITS) continue;
                const I right = is_right<VOCABULARY>(k.logits[s], of(block, PROMPT + first + s)) & counted;
                exact = exact & right;
                m->right += count(right);
            }
        }
        block_loss = select(counted, weighed(aim, block_loss), one(0));
        loss += block_loss;
        if (TRAIN) {
            room.inputs.add(block, room.dstream, room.dqueries, room.attention.dreads);
        } else {
            m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
            see_block(seen, b, ANSWERS, block_loss, exact);
        }
    }
    if (TRAIN) room.inputs.finish(w, g, gradient);
    return loss;
}

// The mean loss of problems, and its gradient.
template <class Source>
INLINE float train(const Wide& w, const Source& source, int problems, Wide& gradient, Room& room, Far& sums,
                   const Goal* goal) {
    clear<Stored>(sums);
    const V loss = run<true>(w, source, problems, nullptr, room, sums, gradient, goal, nullptr);
    total_all<Stored>(sums, gradient.positions);  // of all from there on
    return total(loss) / ((float)ANSWERS * problems);
}

template <class Source>
INLINE void evaluate(const Wide& w, const Source& source, int problems, Measures* sums, Room& room, const Seen* seen) {
    *sums = {0, 0, 0};
    run<false>(w, source, problems, sums, room, *(Sums*)nullptr, *(Wide*)nullptr, nullptr, seen);
}
