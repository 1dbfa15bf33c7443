// What every family's kernel offers, and the shape of what it is given.
//
// A kernel is compiled for one shape of a family's wide tensors (model/spec.py, `kernel`). Problems come in blocks
// of LANES, a problem a lane; a block's tokens are [LENGTH][LANES], of which the first LENGTH - 1 are read and the
// last ANSWERS are asked for. A last block may be part empty: its tokens are valid and its lanes do not count.
#pragma once

#include "goal.h"
#include "lanes.h"

constexpr int LANES = 16;
typedef Floats<LANES> V;
typedef Ints<LANES> I;

// A function with registers of its own: inlined into a long one, its constants would be spilled.
#define APART __attribute__((noinline))

// A thread's own working memory, whose address is asked for once.
template <class E> INLINE E& own() {
    static thread_local E made;
    E* at = &made;
    asm volatile("" : "+r"(at));
    return *at;
}

INLINE V one(float x) { return all<LANES>(x); }
INLINE I of(const int32_t* tokens, int position) { return load<LANES>(tokens + position * LANES); }
INLINE I first_lanes(int n) {  // the mask of lanes that count
    int32_t lane[LANES];
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return load<LANES>(lane) < all<LANES>((int32_t)n);
}

// What a block's answers count in the loss, and what they are learnt by.
struct Aim {
    V share;  // of an answer in the mean; 0 where a lane is empty
#if LOSS
    V weight;  // of a problem
    const Goal* goal;
    const float* theirs;  // the block's of the teacher's logits, or none
#endif
};

INLINE Aim aim_of(const Goal* goal, int block, I counted, int problems, int answers, int vocabulary) {
    Aim aim = {select(counted, one(1.0f / ((float)answers * problems)), one(0))};
#if LOSS
    aim.goal = goal, aim.theirs = nullptr, aim.weight = one(1);
    if (!goal) return aim;
    if (goal->weights) aim.weight = load<LANES>(goal->weights + block * LANES);
    if (goal->teacher) aim.theirs = goal->teacher + (size_t)block * answers * vocabulary * LANES;
    aim.share = aim.share * aim.weight;
#endif
    return aim;
}

#if LOSS
INLINE V weighed(const Aim& aim, V loss) { return aim.weight * loss; }
INLINE void see(const Seen* seen, int answer, int vocabulary, const V* logits) {
    if (!seen || !seen->logits) return;
    for (int v = 0; v < vocabulary; v++) store<LANES>(seen->logits + ((size_t)answer * vocabulary + v) * LANES, logits[v]);
}
INLINE void see_losses(const Seen* seen, int block, int answers, V loss) {
    if (seen && seen->losses) store<LANES>(seen->losses + block * LANES, loss * one(1.0f / answers));
}
#else
INLINE V weighed(const Aim&, V loss) { return loss; }
INLINE void see(const Seen*, int, int, const V*) {}
INLINE void see_losses(const Seen*, int, int, V) {}
#endif

// Logits against what is right: the largest logit wins, and of equal ones the first.
template <int N> INLINE I is_right(const V* logits, I target) {
    V best = logits[0];
    I choice = all<LANES>(0);
    for (int v = 1; v < N; v++) {
        I more = logits[v] > best;
        choice = select<LANES>(more, all<LANES>(v), choice);
        best = select<LANES>(more, logits[v], best);
    }
    return choice == target;
}

extern "C" {
int kernel_size(void);  // numbers of the wide tensors of a seed
int kernel_length(void);  // tokens of a sequence
// Mean loss of `problems` problems; gradient towards the wide tensors. Of a kernel that is built with LOSS the loss is the
// goal's, of any other one cross-entropy.
float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal);
void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums);
#if LOSS  // what a teacher says of problems, and which are hard
void kernel_look(const float* wide, const int32_t* tokens, int problems, const Seen* seen);
#endif
}

#if LOSS
#include "loss.h"
#endif
