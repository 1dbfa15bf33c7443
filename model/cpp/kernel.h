// What every family's kernel is made of, and the shape of what it is given.
//
// A kernel is compiled for one shape of a family's wide tensors (model/spec.py, `kernel`). Problems come in blocks
// of LANES, a problem a lane; a block's tokens are [LENGTH][LANES], of which the first LENGTH - 1 are read and the
// last ANSWERS are asked for. A last block may be part empty: its tokens are valid and its lanes do not count.
//
// A family's kernel_body.h has the wide tensors `Wide`, their gradient's sums `Sums`, a seed's working memory `Room`,
// and `run`, which takes blocks of problems through the model and back.
#pragma once

#include "goal.h"
#include "lanes.h"

#ifndef LOSS
#define LOSS 0
#endif
#ifndef PROMPT_TOKENS
#define PROMPT_TOKENS 22
#endif
#ifndef COUNTED  // answers of the task, without a token that ends them
#define COUNTED 11
#endif

constexpr int LANES = 16;
typedef Floats<LANES> V;
typedef Ints<LANES> I;
typedef InMemory<LANES> Stored;  // a vector that lies in memory, where V may be a register

constexpr int PROMPT = PROMPT_TOKENS, FIRST = PROMPT - 1, POSITIONS = FIRST + ANSWERS, LENGTH = POSITIONS + 1;
// Answers of a block that a stage takes: all of them, or one where a lane is a thread.
constexpr int STAGE = THREADS ? 1 : ANSWERS;

INLINE V one(float x) { return all<LANES>(x); }
INLINE I first_lanes(int n) { return lane_numbers<LANES>() < all<LANES>(n); }  // the mask of lanes that count

// N answers' vectors as one, of a number each or of one number for all.
template <int N> INLINE Floats<N * LANES> at(const V* first) {
    if constexpr (N == 1) return *first;
    else return {at<N / 2>(first), at<N / 2>(first + N / 2)};
}
template <int N> INLINE void put(V* first, Floats<N * LANES> x) {
    if constexpr (N == 1) *first = x;
    else put<N / 2>(first, x.low), put<N / 2>(first + N / 2, x.high);
}
#if THREADS
INLINE V get(const Stored& x) { return x; }
template <int N> INLINE V at(const Stored* first) { return *first; }
template <int N> INLINE void put(Stored* first, V x) { *first = x; }
#else
INLINE const V& get(const V& x) { return x; }
#endif
template <int N> INLINE Floats<N * LANES> numbers(const float* first) {
    if constexpr (N == 1) return one(*first);
    else return {numbers<N / 2>(first), numbers<N / 2>(first + N / 2)};
}

template <int N> INLINE Ints<N * LANES> tokens_of(const Token* block, int position) {
    return read_tokens<N * LANES>(block, position);
}
INLINE I of(const Token* block, int position) { return tokens_of<1>(block, position); }
INLINE const Token* block_of(const Token* first, int block) { return first + (size_t)block * tokens_in(LENGTH); }

// What a block's answers count in the loss, and what they are learnt by.
struct Aim {
    V share;  // of an answer in the mean; 0 where a lane is empty
#if LOSS
    const Goal* goal;
    const float* theirs;  // the block's of the teacher's logits
#endif
};

INLINE Aim aim_of(const Goal* goal, int block, I counted, int problems, int answers, int vocabulary) {
    Aim aim = {select(counted, one(1.0f / ((float)answers * problems)), one(0))};
#if LOSS
    aim.goal = goal;
    if (goal) aim.theirs = goal->teacher + (size_t)block * answers * vocabulary * LANES;
#endif
    return aim;
}

INLINE void see(const Seen* seen, int answer, int vocabulary, const V* logits) {
    if (!seen || !seen->logits) return;
    EACH(v, vocabulary) store<LANES>(seen->logits + ((size_t)answer * vocabulary + v) * LANES, logits[v]);
}
INLINE void see_block(const Seen* seen, int block, I right) {
    if (seen && seen->right) store<LANES>(seen->right + block * LANES, right);
}

// Logits against what is right: the largest logit wins, and of equal ones the first.
template <int N> INLINE I is_right(const V* logits, I target) {
    V best = logits[0];
    I choice = all<LANES>(0);
    EACH_FROM(1, v, N) {
        const I more = logits[v] > best;
        choice = select<LANES>(more, all<LANES>(v), choice);
        best = select<LANES>(more, logits[v], best);
    }
    return choice == target;
}

#if LOSS
#include "loss.h"
#endif
