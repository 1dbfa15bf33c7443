// The loss of an answer and its slope in logits, where there is a teacher: trainer/step/objective.py says the same in torch.
// Compiled with LOSS alone.
//
// With p = softmax z, y what is right (a lane a problem):
//   H = -log p_y                                           dH/dz = p - [v = y]
//   K = T² Σ r log(r / s), r and s softmax at T of the teacher's logits and of z     dK/dz = T (s - r)
//   the loss is (1 - α) H + α K.
#pragma once

#include "goal.h"

// Softmax of N logits divided by a temperature, and the logarithm of its normaliser above the largest.
template <int N> INLINE V tempered(const V* logits, V cooler, V* high, V* p) {
    *high = logits[0];
    EACH_FROM(1, v, N) *high = above(*high, logits[v]);
    V sum = one(0);
    EACH(v, N) sum += p[v] = exponential((logits[v] - *high) * cooler);
    V inverse = one(1) / sum;
    EACH(v, N) p[v] = p[v] * inverse;
    return logarithm(sum);
}

// (1 - α) H + α K from H: the loss, and its slope in place. APART, for few ask for it.
template <int N> APART V distilled(const V* logits, const float* teacher, const Goal& goal, V loss, V* slope) {
    const V cooler = one(1.0f / goal.temperature), mine = one(1.0f - goal.alpha);
    V theirs[N], high, their_high, s[N], r[N], apart = one(0);
    EACH(v, N) theirs[v] = load<LANES>(teacher + v * LANES);
    V log_s = tempered<N>(logits, cooler, &high, s), log_r = tempered<N>(theirs, cooler, &their_high, r);
    EACH(v, N) {
        V log_ratio = ((theirs[v] - their_high) - (logits[v] - high)) * cooler + (log_s - log_r);
        apart = fma(r[v], log_ratio, apart);
        slope[v] = fma(one(goal.alpha * goal.temperature), s[v] - r[v], mine * slope[v]);
    }
    return fma(one(goal.alpha * goal.temperature * goal.temperature), apart, mine * loss);
}

// The loss of answer a of a block; `to`: the gradient in its N logits, which may stand in their place.
template <int N> APART V learn(const V* logits, I target, const Aim& aim, int a, V* to) {
    V slope[N], high = logits[0], right = logits[0], sum = one(0);
    EACH_FROM(1, v, N) {
        high = above(high, logits[v]);
        right = select(target == all<LANES>(v), logits[v], right);
    }
    EACH(v, N) sum += slope[v] = exponential(logits[v] - high);
    const V inverse = one(1) / sum;
    EACH(v, N) slope[v] = fma(slope[v], inverse, select(target == all<LANES>(v), one(-1), one(0)));
    const V loss = distilled<N>(logits, aim.theirs + a * N * LANES, *aim.goal, logarithm(sum) + (high - right), slope);
    EACH(v, N) to[v] = slope[v] * aim.share;
    return loss;
}
