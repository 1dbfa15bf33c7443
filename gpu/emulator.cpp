// The CUDA engine on a CPU, for tests and rehearsals: a team as sixteen fibres of one thread.
#include "engine.h"
#include "fibres.h"
#include "flush.h"

int lane_of() { return current; }
float* team_memory(int number) { return memory + number; }

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
    return run_fibres(16, work, &threads);
}

// The first seed of which the threads did not meet equally often, or -1.
int emulated_train(const Program* p, const Seeds* seeds, int steps) {
    const Flush flush;
    for (int seed = 0; seed < seeds->count; seed++) {
        Job job = {p, seeds, nullptr, seed, steps};
        const auto work = [](void* with) {
            const Job& job = *(const Job*)with;
            float* yard = job.seeds->yard + (int64_t)job.seed * job.p->yard_words;
            train_seed(*job.p, *job.seeds, job.seed, 0, yard, job.steps, true);
        };
        if (!run_fibres(p->team_words, work, &job)) return seed;
    }
    return -1;
}

int emulated_evaluate(const Program* p, const Seeds* seeds, const Exam* exam) {
    const Flush flush;
    for (int seed = 0; seed < seeds->count; seed++) {
        Job job = {p, seeds, exam, seed, 0};
        const auto work = [](void* with) {
            const Job& job = *(const Job*)with;
            evaluate_seed(*job.p, *job.seeds, *job.exam, job.seed, 0, true);
        };
        if (!run_fibres(p->team_words, work, &job)) return seed;
    }
    return -1;
}
}
