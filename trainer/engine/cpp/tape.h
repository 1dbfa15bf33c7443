// A tape: a straight-line program on scalars, run for L seeds at once, a seed a lane, and backwards for its gradient.
//
// trainer/engine/tape.py writes it down from a torch function. Registers are inputs, constants, then one for each operation,
// in order; operations of one kind that do not need each other stand in one block. A lane never meets another.
#pragma once

#include <algorithm>
#include <vector>

#include "lanes.h"

// In the order of OPS in trainer/engine/tape_graph.py.
enum Op { ADD, SUB, MUL, DIV, NEG, ROOT, EXP, LOG, SIN, COS, ABS, MAX, MIN, FLOOR, POWER, GREATER, NOT_LESS, EQUAL, CHOOSE };

struct Block {
    int32_t op, begin, end;  // operations begin .. end - 1
};

struct Tape {
    int32_t inputs, constants, operations, blocks, outputs;
    const float* constant;
    const Block* block;
    const int32_t *a, *b, *c;  // registers that an operation reads
    const int32_t* output;  // registers

    int registers() const { return inputs + constants + operations; }
};

// base^n for a whole n of 0 or more, in double by squaring, rounded once: a power that is equal everywhere.
inline float power(float base, float n) {
    if (!(n >= 0 && n < 9e15f) || n != __builtin_floorf(n)) return __builtin_nanf("");
    double result = 1, square = base;
    for (uint64_t left = (uint64_t)n; left; left >>= 1, square *= square)
        if (left & 1) result *= square;
    return (float)result;
}

template <int L> struct Registers {
    std::vector<Floats<L>> value, slope;  // between two calls of `back` all slopes of operations are 0
    std::vector<int32_t> read;  // the inputs that anything reads: a seed's row has many more

    void fit(const Tape& t) {
        value.resize(t.registers());
        for (int n = 0; n < t.constants; n++) value[t.inputs + n] = all<L>(t.constant[n]);
        std::vector<bool> is_read(t.registers());
        for (const int32_t* reads : {t.a, t.b, t.c})
            for (int n = 0; n < t.operations; n++) is_read[reads[n]] = true;
        for (int n = 0; n < t.outputs; n++) is_read[t.output[n]] = true;
        for (int n = 0; n < t.inputs; n++)
            if (is_read[n]) read.push_back(n);
    }

    // Every register from the inputs [inputs]; the outputs [outputs] where they are asked for.
    void run(const Tape& t, const Floats<L>* input, Floats<L>* output) {
        for (int n : read) value[n] = input[n];
        const Floats<L>* v = value.data();
        Floats<L>* to = value.data() + t.inputs + t.constants;
        const Floats<L> yes = all<L>(1.0f), no = all<L>(0.0f);
#define EACH(expression) \
    for (int n = k.begin; n < k.end; n++) { \
        const Floats<L> a = v[t.a[n]], b = v[t.b[n]]; \
        (void)b; \
        to[n] = expression; \
    } \
    break
        for (int i = 0; i < t.blocks; i++) {
            const Block k = t.block[i];
            switch (k.op) {
            case ADD: EACH(a + b);
            case SUB: EACH(a - b);
            case MUL: EACH(a * b);
            case DIV: EACH(a / b);
            case NEG: EACH(-a);
            case ROOT: EACH(root<L>(a));
            case EXP: EACH(exponential<L>(below<L>(all<L>(88.0f), a)));
            case LOG: EACH(logarithm<L>(a));
            case SIN: EACH(sine<L>(a, 0));
            case COS: EACH(sine<L>(a, 1));
            case ABS: EACH(magnitude<L>(a));
            case MAX: EACH(largest<L>(a, b));
            case MIN: EACH(smallest<L>(a, b));
            case FLOOR: EACH(down<L>(a));
            case GREATER: EACH(select<L>(a > b, yes, no));
            case NOT_LESS: EACH(select<L>(a >= b, yes, no));
            case EQUAL: EACH(select<L>(a == b, yes, no));
            case CHOOSE: EACH(select<L>(a != no, b, v[t.c[n]]));
            case POWER:
                for (int n = k.begin; n < k.end; n++) {
                    float x[L], y[L];
                    store<L>(x, v[t.a[n]]), store<L>(y, v[t.b[n]]);
                    for (int l = 0; l < L; l++) x[l] = power(x[l], y[l]);
                    to[n] = load<L>(x);
                }
                break;
            }
        }
#undef EACH
        for (int n = 0; output && n < t.outputs; n++) output[n] = v[t.output[n]];
    }

    // The gradient towards the inputs [inputs] from that of the outputs [outputs], after `run`.
    Floats<L>* back(const Tape& t, const Floats<L>* output) {
        const Floats<L> no = all<L>(0.0f);
        slope.resize(t.registers(), no);
        std::fill_n(slope.begin(), t.inputs + t.constants, no);
        for (int n = 0; n < t.outputs; n++) slope[t.output[n]] += output[n];
        const int first = t.inputs + t.constants;
        const Floats<L>* v = value.data();
        Floats<L>* s = slope.data();
#define EACH(body) \
    for (int n = k.end; n-- > k.begin;) { \
        const int ia = t.a[n], ib = t.b[n]; \
        const Floats<L> a = v[ia], b = v[ib], y = v[first + n], d = s[first + n]; \
        (void)a, (void)b, (void)y; \
        s[first + n] = no; \
        body; \
    } \
    break
        for (int i = t.blocks; i-- > 0;) {
            const Block k = t.block[i];
            switch (k.op) {
            case ADD: EACH(s[ia] += d; s[ib] += d);
            case SUB: EACH(s[ia] += d; s[ib] += -d);
            case MUL: EACH(s[ia] += d * b; s[ib] += d * a);
            case DIV: EACH(Floats<L> q = d / b; s[ia] += q; s[ib] += -(q * y));
            case NEG: EACH(s[ia] += -d);
            case ROOT: EACH(s[ia] += d * all<L>(0.5f) / y);
            case EXP: EACH(s[ia] += d * y);
            case LOG: EACH(s[ia] += d / a);
            case SIN: EACH(s[ia] += d * sine<L>(a, 1));
            case COS: EACH(s[ia] += -(d * sine<L>(a, 0)));
            case ABS: EACH(s[ia] += select<L>(a >= no, d, -d));
            case MAX: EACH(Ints<L> m = a > b; s[ia] += select<L>(m, d, no); s[ib] += select<L>(m, no, d));
            case MIN: EACH(Ints<L> m = b > a; s[ia] += select<L>(m, d, no); s[ib] += select<L>(m, no, d));
            case CHOOSE:
                EACH(Ints<L> m = a != no; s[ib] += select<L>(m, d, no); s[t.c[n]] += select<L>(m, no, d));
            default: std::fill(s + first + k.begin, s + first + k.end, no);  // no gradient passes
            }
        }
#undef EACH
        return s;
    }
};
