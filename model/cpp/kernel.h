// What every family's kernel offers, and the shape of what it is given.
//
// A kernel is compiled for one shape of a family's wide tensors (model/spec.py, `kernel`). Problems come in blocks
// of LANES, a problem a lane; a block's tokens are [LENGTH][LANES], of which the first LENGTH - 1 are read and the
// last ANSWERS are asked for. A last block may be part empty: its tokens are valid and its lanes do not count.
#pragma once

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

// Sums over the evaluated problems: all eleven digits right, digits right, loss (its mean over the answers).
struct Measures {
    int64_t exact, right;
    double loss;
};

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
// Mean loss of `problems` problems; gradient towards the wide tensors.
float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient);
void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums);
}
