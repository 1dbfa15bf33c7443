// The loss of a stage's answers: cross-entropy, or with a teacher. For families whose answers' logits are vectors of lanes.
#pragma once

// The loss of the answers from `first` on, and with TRAIN the gradient of logits.
template <bool TRAIN>
INLINE V judge(const V (*logits)[VOCABULARY], V (*dlogits)[VOCABULARY], const Token* block, int first, const Aim& aim) {
    V loss = one(0);
    EACH(s, STAGE) {
        const V* its = logits[s];
        const I target = of(block, PROMPT + first + s);
#if LOSS
        if (TRAIN) {
            loss += learn<VOCABULARY>(its, target, aim, first + s, dlogits[s]);
            continue;
        }
#endif
        V high = its[0], sum = one(0), right = its[0], q[VOCABULARY];
        EACH_FROM(1, v, VOCABULARY) {
            high = above(high, its[v]);
            right = select(target == all<LANES>(v), its[v], right);
        }
        EACH(v, VOCABULARY) sum += q[v] = exponential(its[v] - high);
        const V inverse = aim.share / sum;
        if (TRAIN) EACH(v, VOCABULARY) {
            const V d = q[v] * inverse;
            dlogits[s][v] = select(target == all<LANES>(v), d - aim.share, d);
        }
        loss += logarithm(sum) + (high - right);
    }
    return loss;
}
