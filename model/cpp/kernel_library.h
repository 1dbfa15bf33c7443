// A kernel as a library of a CPU: what trainer/engine calls, from a family's `train` and `evaluate`.
#pragma once

#include "flush.h"

extern "C" {
int kernel_size(void) { return SIZE; }  // numbers of the wide tensors of a seed
int kernel_length(void) { return LENGTH; }  // tokens of a sequence

// Mean loss of `problems` problems; gradient towards the wide tensors. A kernel that is built with LOSS has a goal, any
// other one none.
float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal) {
    const Flush flush;
    const auto source = [=](int b) { return block_of(tokens, b); };
    return train(*(const Wide*)wide, source, problems, *(Wide*)gradient, own<Room>(), own<Far>(), goal);
}

// Sums over problems, and what is seen of them, if anything.
void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums, const Seen* seen) {
    const Flush flush;
    evaluate(*(const Wide*)wide, [=](int b) { return block_of(tokens, b); }, problems, sums, own<Room>(), seen);
}
}
