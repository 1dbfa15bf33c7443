// A tape: a straight-line program on scalars, run for L seeds at once, a seed a lane, and backwards for its gradient.
//
// trainer/engine/tape.py writes it down from a torch function. Registers are inputs, constants, then one for each operation,
// in order; operations of one kind that do not need each other stand in one block. A lane never meets another.
#pragma once

#include <algorithm>
#include <vector>

#include "operations.h"

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
#define RUN(name, expression) \
    case name: \
        for (int n = k.begin; n < k.end; n++) { \
            const Floats<L> a = v[t.a[n]], b = v[t.b[n]], c = v[t.c[n]]; \
            (void)b, (void)c; \
            to[n] = expression; \
        } \
        break;
        for (int i = 0; i < t.blocks; i++) {
            const Block k = t.block[i];
            switch (k.op) { EACH_OPERATION(RUN) }
        }
#undef RUN
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
#define PULL(body) \
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
            case ADD: PULL(s[ia] += d; s[ib] += d);
            case SUB: PULL(s[ia] += d; s[ib] += -d);
            case MUL: PULL(s[ia] += d * b; s[ib] += d * a);
            case DIV: PULL(Floats<L> q = d / b; s[ia] += q; s[ib] += -(q * y));
            case NEG: PULL(s[ia] += -d);
            case ROOT: PULL(s[ia] += d * all<L>(0.5f) / y);
            case EXP: PULL(s[ia] += d * y);
            case LOG: PULL(s[ia] += d / a);
            case SIN: PULL(s[ia] += d * sine<L>(a, 1));
            case COS: PULL(s[ia] += -(d * sine<L>(a, 0)));
            case ABS: PULL(s[ia] += select<L>(a >= no, d, -d));
            case MAX: PULL(Ints<L> m = a > b; s[ia] += select<L>(m, d, no); s[ib] += select<L>(m, no, d));
            case MIN: PULL(Ints<L> m = b > a; s[ia] += select<L>(m, d, no); s[ib] += select<L>(m, no, d));
            case CHOOSE:
                PULL(Ints<L> m = a != no; s[ib] += select<L>(m, d, no); s[t.c[n]] += select<L>(m, no, d));
            default: std::fill(s + first + k.begin, s + first + k.end, no);  // no gradient passes
            }
        }
#undef PULL
        return s;
    }
};
