// Whole steps of a bank's seeds on a GPU, a team of threads a seed, from evaluation to evaluation in one launch: what
// trainer/engine/cpp/engine.cpp does on a CPU, in the same order, with the same bits. No team waits for another.
//
// Compiled for a family's shape with SOURCE (trainer/engine/cpp/problems.h), SUMS_OF_CHUNK, PARKED_AT_ONCE (schedule.py) and TEAMS,
// by NVRTC, or with FIBRES by g++ (emulator.cpp).
#pragma once

#include "kernel_body.h"
#include "problems.h"
#include "steps.h"

constexpr bool FAR_IS_SMALL = sizeof(Far) <= 4096;

struct Program {
    Schedule schedule;
    Part lesson, expand, back, probe, take;
    const float* constants;
    const uint16_t *inputs, *parked;  // places in a row of the first slots; slots that are put aside while the kernel runs
    int32_t input_count, constant_count, parked_count;
    int32_t row, updated, parameters, batch;  // numbers of a row, those that a step updates, of which the next is the step
    int32_t constants_at, asked_at, gradient_at, there_at, wide_at, pull_at, room_at;  // slots
    int32_t team_words, yard_words;  // numbers of a team in the memory that it shares, and in global memory
    int32_t targeted;  // slot of a share of problems; -1: off
};

// What is different from seed to seed, each [seeds].
struct Seeds {
    float* rows;  // [row]
    const int64_t* data_seeds;
    const int16_t* ties;  // [2][parameters] or none: of each entry the first that is tied to it, and the next; from 1 on
    const double* errors;  // [2][kept] or none: operands of problems that the seed gets wrong
    const int64_t* error_count;
    float* losses;  // the sum over steps is added
    float* yard;  // [yard_words]
    int32_t kept, count;
};

// Memory in place of which slots are, but while the kernel runs.
struct Shared {
    Room room;
    Token tokens[BLOCKS_KEPT][tokens_in(LENGTH)];
    alignas(4) uint8_t far[FAR_IS_SMALL ? sizeof(Far) : 4];
};

// A seed on its team.
struct Trained {
    const Program& p;
    const Seeds& seeds;
    const int seed, slots;  // slots: number in the team's memory
    float* const slot;
    Shared& shared;
    float *const parked, *const free;
    Far& far;
    float summed = 0;

    INLINE_MEMBER Trained(const Program& program, const Seeds& all, int seed, int slots, float* yard)
        : p(program), seeds(all), seed(seed), slots(slots), slot(team_memory(slots)), shared(*(Shared*)(slot + p.room_at)),
          parked(yard), free(parked + p.parked_count),
          far(*(Far*)(FAR_IS_SMALL ? (float*)shared.far : free + p.parameters)) {}

    INLINE_MEMBER void run(Part part) const { run_part(p.schedule, part, slots); }

    INLINE_MEMBER void begin(const float* row) {
        EACH_SHARED(n, p.input_count) slot[n] = row[p.inputs[n]];
        EACH_SHARED(n, p.constant_count) slot[p.constants_at + n] = p.constants[n];
        meet();
    }

    // A vector of θ's size held by the seed's ties, in place: `hold` of engine.cpp.
    INLINE_MEMBER void hold(float* x, float ramp) {
        const int16_t *first = seeds.ties + (int64_t)seed * 2 * p.parameters, *next = first + p.parameters;
        float* means = (float*)&shared;
        EACH_SHARED(n, p.parameters) {
            if ((first[n] < 0 ? -first[n] : first[n]) != n + 1) continue;
            float sum = 0, count = 0;
            for (int k = n; k >= 0; k = next[k] - 1) sum += first[k] < 0 ? -x[k] : x[k], count += 1;
            means[n] = sum / count;
        }
        meet();
        EACH_SHARED(n, p.parameters) {
            const float mean = first[n] < 0 ? -means[-first[n] - 1] : first[n] ? means[first[n] - 1] : 0.0f;
            x[n] = (1 - ramp) * x[n] + ramp * mean;
        }
        meet();
    }

    INLINE_MEMBER Lesson lesson() const {
        const float* ask = slot + p.asked_at;
        Lesson its = lesson_of(seeds.data_seeds[seed], (int64_t)slot[p.updated], [&](Asked n) { return ask[n]; });
        if (p.targeted >= 0) {
            its.targeted = slot[p.targeted], its.errors = seeds.error_count[seed];
            its.error_a = seeds.errors + (int64_t)seed * 2 * seeds.kept, its.error_b = its.error_a + seeds.kept;
        }
        return its;
    }

    // The gradient of the loss at θ's slots into its own; returns the loss.
    INLINE_MEMBER float slope() {
        const float ramp = slot[p.asked_at + ASK_RAMP];
        if (seeds.ties) {
            EACH_SHARED(n, p.parameters) free[n] = slot[n];
            hold(slot, ramp);
        }
        run(p.expand);
        park<true>();
        const float loss = learn();
        meet();
        park<false>();
        run(p.back);  // which reads θ as it was held
        if (seeds.ties) {
            EACH_SHARED(n, p.parameters) slot[n] = free[n];
            hold(slot + p.gradient_at, ramp);
        }
        return loss;
    }

    // What `back` reads, put aside while the kernel has its place, or brought back.
    template <bool ASIDE> INLINE_MEMBER void park() {
#pragma unroll 1
        for (int n = lane_of(); n < p.parked_count; n += 16 * PARKED_AT_ONCE) {
            int from[PARKED_AT_ONCE];
            float x[PARKED_AT_ONCE];
            EACH(u, PARKED_AT_ONCE) from[u] = p.parked[n + 16 * u];
            EACH(u, PARKED_AT_ONCE) x[u] = ASIDE ? slot[from[u]] : parked[n + 16 * u];
            EACH(u, PARKED_AT_ONCE)(ASIDE ? parked[n + 16 * u] : slot[from[u]]) = x[u];
        }
        meet();
    }

    INLINE_MEMBER float learn() {
        const Lesson its = lesson();
        const Sequence sequence;
        Problems problems(its, sequence);
        Token(*const tokens)[tokens_in(LENGTH)] = shared.tokens;
        const auto source = [&](int b) {
            problems.block(b * LANES, tokens[b % BLOCKS_KEPT]);
            return (const Token*)tokens[b % BLOCKS_KEPT];
        };
        const Wide& wide = *(const Wide*)(slot + p.wide_at);
        return train(wide, source, p.batch, *(Wide*)(slot + p.pull_at), shared.room, far, nullptr);
    }

    INLINE_MEMBER void step() {
        run(p.lesson);
        const bool probes = p.probe.last > p.probe.first;
#pragma unroll 1
        for (int pass = 0; pass <= probes; pass++) {
            const float loss = slope();
            if (pass == 0) summed += loss;
            if (pass == probes) break;
            run(p.probe);
            swap();
        }
        if (probes) swap();
        run(p.take);
        EACH_SHARED(once, 1) slot[p.updated] += 1.0f;
        meet();
    }

    // θ and the point at which its gradient is taken instead.
    INLINE_MEMBER void swap() {
        EACH_SHARED(n, p.parameters) {
            const float x = slot[n];
            slot[n] = slot[p.there_at + n], slot[p.there_at + n] = x;
        }
        meet();
    }
};

INLINE void train_seed(const Program& p, const Seeds& seeds, int seed, int slots, float* yard, int steps, bool writes) {
    float* row = seeds.rows + (int64_t)seed * p.row;
    Trained its(p, seeds, seed, slots, yard);
    its.begin(row);
#pragma unroll 1
    for (int n = 0; n < steps; n++) its.step();
    if (!writes) return;
    EACH_SHARED(n, p.updated + 1) row[n] = its.slot[n];
    EACH_SHARED(once, 1) seeds.losses[seed] += its.summed;
}

// Blocks of problems, for all seeds or, with `each`, for each [seeds]; marks [seeds][blocks][16] or none: of right answers.
struct Exam {
    const Token* tokens;
    Measures* measures;
    int32_t* marks;
    int32_t problems, each;
};

INLINE void evaluate_seed(const Program& p, const Seeds& seeds, const Exam& exam, int seed, int slots, bool writes) {
    Trained its(p, seeds, seed, slots, nullptr);
    its.begin(seeds.rows + (int64_t)seed * p.row);
    its.run(p.expand);
    const int blocks = (exam.problems + LANES - 1) / LANES, first = exam.each ? seed * blocks : 0;
    const auto source = [&](int b) { return block_of(exam.tokens, first + b); };
    const Seen seen = {nullptr, writes && exam.marks ? exam.marks + (int64_t)seed * blocks * LANES : nullptr};
    Measures sums;
    evaluate(*(const Wide*)(its.slot + p.wide_at), source, exam.problems, &sums, its.shared.room, &seen);
    if (writes) EACH_SHARED(once, 1) exam.measures[seed] = sums;
}

// Bytes that the machine must know of this build: `Sizes` of gpu/structures.py.
INLINE void write_sizes(int32_t* to) {
    to[0] = sizeof(Wide), to[1] = sizeof(Shared), to[2] = FAR_IS_SMALL ? 0 : (int32_t)sizeof(Far);
}

#ifndef FIBRES
extern "C" __global__ void engine_sizes(int32_t* to) { write_sizes(to); }
extern "C" __global__ void __launch_bounds__(16 * TEAMS)
engine_train(const __grid_constant__ Program p, const __grid_constant__ Seeds seeds, int steps) {
    const int team = threadIdx.x / 16, which = blockIdx.x * TEAMS + team, last = seeds.count - 1;
    float* yard = seeds.yard + (int64_t)which * p.yard_words;
    train_seed(p, seeds, which < last ? which : last, team * p.team_words, yard, steps, which <= last);
}
extern "C" __global__ void __launch_bounds__(16 * TEAMS)
engine_evaluate(const __grid_constant__ Program p, const __grid_constant__ Seeds seeds, const __grid_constant__ Exam exam) {
    const int team = threadIdx.x / 16, which = blockIdx.x * TEAMS + team, last = seeds.count - 1;
    evaluate_seed(p, seeds, exam, which < last ? which : last, team * p.team_words, which <= last);
}
#endif
