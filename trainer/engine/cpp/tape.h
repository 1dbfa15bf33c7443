// A tape: a straight-line program on scalars, run for L seeds at once, one seed per lane, and backwards for its gradient.
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

// The slope d of a result y, added to those of what its operation reads: a, b, c in registers ia, ib, ic. `no` is 0. No
// gradient passes through operations that are not here.
// Of equal numbers the second has the slope of the larger: torch halves it, but families were trained so.
#define EACH_PULL(_) \
    _(ADD, s[ia] += d; s[ib] += d) \
    _(SUB, s[ia] += d; s[ib] += -d) \
    _(MUL, s[ia] += d * b; s[ib] += d * a) \
    _(DIV, Floats<L> q = d / b; s[ia] += q; s[ib] += -(q * y)) \
    _(NEG, s[ia] += -d) \
    _(ROOT, s[ia] += d * all<L>(0.5f) / y) \
    _(EXP, s[ia] += d * y) \
    _(LOG, s[ia] += d / a) \
    _(SIN, s[ia] += d * sine<L>(a, 1)) \
    _(COS, s[ia] += -(d * sine<L>(a, 0))) \
    _(ABS, s[ia] += select<L>(a > no, d, select<L>(no > a, -d, no))) \
    _(MAX, Ints<L> m = a > b; s[ia] += select<L>(m, d, no); s[ib] += select<L>(m, no, d)) \
    _(MIN, Ints<L> m = b > a; s[ia] += select<L>(m, d, no); s[ib] += select<L>(m, no, d)) \
    _(CHOOSE, Ints<L> m = a != no; s[ib] += select<L>(m, d, no); s[ic] += select<L>(m, no, d))

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
#define PULL(name, body) \
    case name: \
        for (int n = k.end; n-- > k.begin;) { \
            const int ia = t.a[n], ib = t.b[n], ic = t.c[n]; \
            const Floats<L> a = v[ia], b = v[ib], y = v[first + n], d = s[first + n]; \
            (void)a, (void)b, (void)y, (void)ib, (void)ic; \
            s[first + n] = no; \
            body; \
        } \
        break;
        for (int i = t.blocks; i-- > 0;) {
            const Block k = t.block[i];
            switch (k.op) {
                EACH_PULL(PULL)
            default: std::fill(s + first + k.begin, s + first + k.end, no);  // no gradient passes
            }
        }
#undef PULL
        return s;
    }
};
