// What a tape's operations do to numbers a, b, c, in the order of OPS in trainer/engine/tape_graph.py.
#pragma once

#include "lanes.h"

// base^n for a whole n of 0 or more, in double by squaring, rounded once: a power that is equal everywhere.
INLINE float power(float base, float n) {
    if (!(n >= 0 && n < 9e15f) || n != floor_of(n)) return float_of(0x7fc00000);
    double result = 1, square = base;
    for (uint64_t left = (uint64_t)n; left; left >>= 1, square *= square)
        if (left & 1) result *= square;
    return (float)result;
}

#define EACH_OPERATION(_) \
    _(ADD, a + b) \
    _(SUB, a - b) \
    _(MUL, a * b) \
    _(DIV, a / b) \
    _(NEG, -a) \
    _(ROOT, root<L>(a)) \
    _(EXP, exponential<L>(below<L>(all<L>(88.0f), a))) \
    _(LOG, logarithm<L>(a)) \
    _(SIN, sine<L>(a, 0)) \
    _(COS, sine<L>(a, 1)) \
    _(ABS, magnitude<L>(a)) \
    _(MAX, largest<L>(a, b)) \
    _(MIN, smallest<L>(a, b)) \
    _(FLOOR, down<L>(a)) \
    _(POWER, (lane_by_lane<L>(power, a, b))) \
    _(GREATER, select<L>(a > b, all<L>(1.0f), all<L>(0.0f))) \
    _(NOT_LESS, select<L>(a >= b, all<L>(1.0f), all<L>(0.0f))) \
    _(EQUAL, select<L>(a == b, all<L>(1.0f), all<L>(0.0f))) \
    _(CHOOSE, select<L>(a != all<L>(0.0f), b, c))
#define NAMED(name, expression) name,
enum Op { EACH_OPERATION(NAMED) OPERATIONS };
#undef NAMED
