// A tape as a team runs it: steps of operations of one kind that do not need each other (gpu/schedule.py).
//
// A step has ROUNDS operations for each thread; idle ones write to a slot of the thread's own. Slots are numbers of the
// seed in memory that the team shares. The schedule is far away: two steps are fetched while the two before them run.
#pragma once

#include "operations.h"

constexpr int ROUNDS = 4;

// Slots that an operation reads and writes, two a word: taken apart when they are wanted, not when they are fetched.
struct alignas(8) Places {
    uint32_t ab, c_to;
    INLINE_MEMBER int a() const { return ab & 0xffff; }
    INLINE_MEMBER int b() const { return ab >> 16; }
    INLINE_MEMBER int c() const { return c_to & 0xffff; }
    INLINE_MEMBER int to() const { return c_to >> 16; }
};

struct Schedule {
    const uint16_t* kinds;  // of each step: an operation, or OPERATIONS for a move
    const Places* places;  // [steps][ROUNDS][16]
};

struct Part {
    int32_t first, last;  // steps first .. last - 1
};

struct Step {
    Places round[ROUNDS];
    int kind;

    INLINE_MEMBER void fetch(const Schedule& schedule, int n) {
        kind = schedule.kinds[n];
        EACH(u, ROUNDS) round[u] = schedule.places[(n * ROUNDS + u) * 16 + lane_of()];
    }

    INLINE_MEMBER void run(float* slot) const {
        constexpr int L = 16;
        Floats<L> x[ROUNDS], y[ROUNDS], made[ROUNDS];
        EACH(u, ROUNDS) x[u].v = slot[round[u].a()], y[u].v = slot[round[u].b()];
#define RUN(name, expression) \
    case name: \
        EACH(u, ROUNDS) { \
            const Floats<L> a = x[u], b = y[u], c = {name == CHOOSE ? slot[round[u].c()] : 0.0f}; \
            (void)b, (void)c; \
            made[u] = expression; \
        } \
        break;
        switch (kind) {
            EACH_OPERATION(RUN)
        default: EACH(u, ROUNDS) made[u] = x[u];
        }
#undef RUN
        EACH(u, ROUNDS) slot[round[u].to()] = made[u].v;
        meet();
    }
};

// The steps of a part, on the slots that begin at this number of the team's memory.
ONCE void run_part(Schedule schedule, Part part, int slots) {
    float* const slot = team_memory(slots);
    Step one, two, third, fourth;
    one.fetch(schedule, part.first), two.fetch(schedule, part.first + 1);
#pragma unroll 1
    for (int n = part.first; n < part.last; n += 2) {
        third.fetch(schedule, n + 2), fourth.fetch(schedule, n + 3);
        one.run(slot);
        if (n + 1 < part.last) two.run(slot);
        one = third, two = fourth;
    }
}
