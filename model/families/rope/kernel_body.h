// The rope family from its wide tensors on: everything that depends on the problem, and its gradient. The wide tensors are
// those of `expand` (forward.py), in its order.
#pragma once

#include "kernel.h"

constexpr int VOCABULARY = 10;
constexpr int BLOCKS_KEPT = 1;  // of tokens, where they are made block by block
constexpr int HEAD = 4, ROWS = POSITIONAL ? POSITIONS : 1;  // ROWS: positions whose inputs differ
constexpr int QUERIES = HEADS * HEAD, VALUES = HEADS * WIDTH, SEEN = HEAD + VALUES;
constexpr float EPS = 1e-6f;
constexpr float BOUND = 30;  // of scores whose exponentials are taken as they are: far from float's ends

#include "linear.h"

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
    const V loss = k.judge<TRAIN>(block, first, aim);
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

// The mean loss of problems, and its gradient; that of constants is 0.
template <class Source>
INLINE float train(const Wide& w, const Source& source, int problems, Wide& gradient, Room& room, Far& sums,
                   const Goal* goal) {
    clear<Stored>(sums);
    const V loss = run<true>(w, source, problems, nullptr, room, sums, gradient, goal, nullptr);
    total_all<Stored>(sums, gradient.queries);  // of all from there on
    EACH_SHARED(n, (int)((sizeof(Wide) - offsetof(Wide, turns)) / sizeof(float))) (&gradient.turns[0][0])[n] = 0;
    return total(loss) / ((float)ANSWERS * problems);
}

template <class Source>
INLINE void evaluate(const Wide& w, const Source& source, int problems, Measures* sums, Room& room, const Seen* seen) {
    *sums = {0, 0, 0};
    run<false>(w, source, problems, sums, room, *(Sums*)nullptr, *(Wide*)nullptr, nullptr, seen);
}
