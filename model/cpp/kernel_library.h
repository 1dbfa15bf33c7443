// A kernel as a library of a CPU: what trainer/engine calls, from a family's `train`, `evaluate` and `look`.
#pragma once

#include "flush.h"

extern "C" {
int kernel_size(void) { return SIZE; }  // numbers of the wide tensors of a seed
int kernel_length(void) { return LENGTH; }  // tokens of a sequence

// Mean loss of `problems` problems; gradient towards the wide tensors. Of a kernel that is built with LOSS the loss is the
// goal's, of any other one cross-entropy.
float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal) {
    const Flush flush;
    const auto source = [=](int b) { return block_of(tokens, b); };
    return train(*(const Wide*)wide, source, problems, *(Wide*)gradient, own<Room>(), own<Far>(), goal);
}

void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums) {
    const Flush flush;
    evaluate(*(const Wide*)wide, [=](int b) { return block_of(tokens, b); }, problems, sums, own<Room>(), nullptr);
}

// What is seen of problems: a teacher's logits, which are hard, which are right.
void kernel_look(const float* wide, const int32_t* tokens, int problems, const Seen* seen) {
    const Flush flush;
    Measures unread;
    evaluate(*(const Wide*)wide, [=](int b) { return block_of(tokens, b); }, problems, &unread, own<Room>(), seen);
}
}
