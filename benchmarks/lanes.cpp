// What the engine's own vectors can do at best (benchmarks/ceilings.py): the numbers they end with are not of interest.
#include "kernel.h"

// As many sums as there are registers for, so that none waits for itself.
constexpr int SUMS = REGISTER_LANES == 16 ? 12 : REGISTER_LANES == 8 ? 6 : 3;

extern "C" {
// Fused multiply-adds of a round on numbers.
int fma_of_a_round(void) { return SUMS * LANES; }

void lanes_fma(float* numbers, int rounds) {
    V factor = load<LANES>(numbers), sum[SUMS];
    for (int i = 0; i < SUMS; i++) sum[i] = factor;
    for (int n = 0; n < rounds; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) sum[i] = fma(sum[i], factor, factor);
    }
    for (int i = 1; i < SUMS; i++) sum[0] += sum[i];
    store<LANES>(numbers, sum[0]);
}

// Exponentials of `count` numbers, a multiple of four vectors, `rounds` times.
void lanes_exponentials(float* numbers, int count, int rounds) {
    V sum[4] = {one(0), one(0), one(0), one(0)};
    for (int n = 0; n < rounds; n++) {
        for (int at = 0; at < count; at += 4 * LANES)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sum[i] += exponential(load<LANES>(numbers + at + i * LANES));
    }
    for (int i = 1; i < 4; i++) sum[0] += sum[i];
    store<LANES>(numbers, sum[0]);
}
}
