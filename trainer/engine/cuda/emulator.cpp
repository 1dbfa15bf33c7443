// The CUDA engine on a CPU, for tests and rehearsals: a team as sixteen fibres of one thread. A meeting hands on to the
// next fibre, so that a round of them is a barrier. What nobody has written is no number (NaN).
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>

#include "engine.h"

struct Fibre {
    jmp_buf at;
    ucontext_t start;
    bool begun;
    int64_t meetings;
    uint32_t parity;
    char* stack;
};
constexpr size_t STACK = 1 << 18;
static thread_local Fibre fibres[16];
static thread_local ucontext_t home;
static thread_local int current;
static thread_local float post[2][16], *memory;
static thread_local void (*body)(void*);
static thread_local void* argument;

int lane_of() { return current; }
float* team_memory(int number) { return memory + number; }

static void hand_on(int to) {
    current = to;
    if (fibres[to].begun) _longjmp(fibres[to].at, 1);
    fibres[to].begun = true;
    setcontext(&fibres[to].start);
}

void meet() {
    Fibre& own = fibres[current];
    own.meetings++;
    if (!_setjmp(own.at)) hand_on((current + 1) % 16);
}

float across(float x, int apart) {
    const int own = current;
    float* here = post[fibres[own].parity ^= 1];
    here[own] = x;
    meet();
    return here[own ^ apart];
}

static void fibre() {
    body(argument);
    if (current == 15) setcontext(&home);
    hand_on(current + 1);
}

// Runs `work` as a team, whose memory is `words` numbers. True if all have met equally often.
static bool run_team(int words, void (*work)(void*), void* with) {
    memory = (float*)std::aligned_alloc(64, (words + 16) / 16 * 64);
    std::memset((void*)memory, 0xff, words * sizeof(float));
    body = work, argument = with, current = 0;
    for (Fibre& f : fibres) {
        f.begun = false, f.meetings = 0, f.parity = 0;
        if (!f.stack) f.stack = (char*)std::malloc(STACK);
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = f.stack, f.start.uc_stack.ss_size = STACK, f.start.uc_link = nullptr;
        makecontext(&f.start, fibre, 0);
    }
    fibres[0].begun = true;
    swapcontext(&home, &fibres[0].start);
    std::free(memory);
    for (const Fibre& f : fibres)
        if (f.meetings != fibres[0].meetings) return false;
    return true;
}

struct Job {
    const Program* p;
    const Seeds* seeds;
    const Exam* exam;
    int seed, steps;
};

extern "C" {
void emulated_sizes(int32_t* to) { write_sizes(to); }

// 1 where a team of which the first threads, so many of them, meet once more than the others is found to meet alike.
int emulated_meetings(int threads) {
    const auto work = [](void* more) {
        meet();
        if (lane_of() < *(int*)more) meet();
    };
    return run_team(16, work, &threads);
}

// The first seed of which the threads did not meet equally often, or -1.
int emulated_train(const Program* p, const Seeds* seeds, int steps) {
    for (int seed = 0; seed < seeds->count; seed++) {
        Job job = {p, seeds, nullptr, seed, steps};
        const auto work = [](void* with) {
            const Job& job = *(const Job*)with;
            float* yard = job.seeds->yard + (int64_t)job.seed * job.p->yard_words;
            train_seed(*job.p, *job.seeds, job.seed, 0, yard, job.steps, true);
        };
        if (!run_team(p->team_words, work, &job)) return seed;
    }
    return -1;
}

int emulated_evaluate(const Program* p, const Seeds* seeds, const Exam* exam) {
    for (int seed = 0; seed < seeds->count; seed++) {
        Job job = {p, seeds, exam, seed, 0};
        const auto work = [](void* with) {
            const Job& job = *(const Job*)with;
            evaluate_seed(*job.p, *job.seeds, *job.exam, job.seed, 0, true);
        };
        if (!run_team(p->team_words, work, &job)) return seed;
    }
    return -1;
}
}
