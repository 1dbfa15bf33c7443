// The loss of an answer and its slope in logits, where it is more than cross-entropy: trainer/step/objective.py says the same
// in torch. Compiled with LOSS alone.
//
// With p = softmax z, y what is right, e the smoothing, N tokens (a lane a problem):
//   H = -Σ q log p, q = (1 - e) [v = y] + e / N            dH/dz = p - q
//   F = (1 - p_y)^γ H                                      dF/dz = (1 - p_y)^γ (dH/dz - γ p_y H ([v = y] - p) / (1 - p_y))
//   K = T² Σ r log(r / s), r and s softmax at T of the teacher's logits and of z     dK/dz = T (s - r)
//   the loss is (1 - α) F + α K.
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

// (1 - α) F + α K from F: the loss, and its slope in place. APART, for few ask for it.
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
    const Goal& goal = *aim.goal;
    V slope[N], p[N], high = logits[0], right = logits[0], sum = one(0), below = one(0), rest = one(0), here = one(0);
    EACH_FROM(1, v, N) {
        high = above(high, logits[v]);
        right = select(target == all<LANES>(v), logits[v], right);
    }
    EACH(v, N) {
        V its = p[v] = exponential(logits[v] - high);
        sum += its;
        rest += select(target == all<LANES>(v), one(0), its);
        here += select(target == all<LANES>(v), its, one(0));
        below += high - logits[v];
    }
    const float spread = goal.smoothing / N;
    const V inverse = one(1) / sum;
    V loss = logarithm(sum) + fma(one(spread), below, one(1.0f - goal.smoothing) * (high - right));
    EACH(v, N) {
        V wanted = select(target == all<LANES>(v), one(1.0f - goal.smoothing + spread), one(spread));
        slope[v] = fma(p[v], inverse, -wanted);
    }
    if (goal.gamma != 0) {
        V weight = exponential(one(goal.gamma) * logarithm(rest * inverse));
        V pull = one(goal.gamma) * weight * (here * inverse) * loss, others = one(1) / rest;
        EACH(v, N) {
            V away = select(target == all<LANES>(v), one(1), -(p[v] * others));
            slope[v] = weight * slope[v] - pull * away;
        }
        loss = weight * loss;
    }
    if (aim.theirs) loss = distilled<N>(logits, aim.theirs + a * N * LANES, goal, loss, slope);
    EACH(v, N) to[v] = slope[v] * aim.share;
    return loss;
}
