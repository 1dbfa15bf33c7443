// Whole steps of a bank's seeds, from evaluation to evaluation in one call (trainer/engine/native.py).
//
// A step of a seed: its numbers (lesson tape), its problems, its wide tensors (expand tape), the family's kernel on
// them, back through expand to the gradient of θ, and the optimiser's step (take tape). Tapes run for a group of seeds,
// a seed a lane; the kernel runs a seed at a time, a problem a lane. Nothing that a seed does depends on another's.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "flush.h"
#include "goal.h"
#include "problems.h"
#include "tape.h"

typedef void (*Evaluate)(const float* wide, const int32_t* tokens, int problems, Measures* sums, const Seen* seen);

// A teacher's kernel and wide tensors, or none; `alpha` and `temperature` are places in a seed's row.
struct Learning {
    Evaluate teacher;
    const float* wide;
    int32_t alpha, temperature, logits;  // logits: numbers of a block's
};

// A seed is a row of numbers, which all tapes take as their inputs: trainer/engine/native.py says which is which.
struct Program {
    Tape lesson, expand, probe, take;  // probe: θ at which the gradient is taken instead, or nothing
    Sequence sequence;
    RowTable rows;
    int32_t batch, row, theta, step, gradient, parameters;
    const int32_t* updated;  // the places in the row of what `take` makes
    float (*train)(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal);
    Evaluate evaluate;
    Learning learning;
    int32_t targeted;  // place of a share of problems; -1: off
};

// Problems that each seed gets wrong: operands [seeds][2][kept], and how many of them there are.
struct Errors {
    const double* operands;
    const int64_t* count;
    int32_t kept;
};

template <int L> struct Group {
    const Program& p;
    Registers<L> lesson, expand, probe, take;
    std::vector<Floats<L>> row, wide, pull, made, free, there;
    const int stride;  // of a seed's wide tensors, and of the gradient towards them, where each seed has its own
    std::vector<float> seed_wide, seed_pull;
    const int32_t* ties = nullptr;  // [seeds][parameters], or none
    std::vector<float> taught;
    Errors errors = {nullptr, nullptr, 0};

    explicit Group(const Program& program)
        : p(program), row(p.row), wide(p.expand.outputs), pull(p.expand.outputs), stride((p.expand.outputs + 3) / 4 * 4),
          seed_wide(stride * L), seed_pull(stride * L) {
        lesson.fit(p.lesson), expand.fit(p.expand), probe.fit(p.probe), take.fit(p.take);
        made.resize(p.row);
        if (p.learning.teacher) taught.resize((size_t)blocks() * p.learning.logits);
    }

    int blocks() const { return (p.batch + PER_BLOCK - 1) / PER_BLOCK; }

    static float& lane(Floats<L>& x, int l) { return ((float*)&x)[l]; }

    void read(const float* rows, int seeds) {  // lanes without a seed repeat the first
        for (int n = 0; n < p.row; n++)
            for (int l = 0; l < L; l++) lane(row[n], l) = rows[(l < seeds ? l : 0) * p.row + n];
    }

    void write(float* rows, int seeds) {
        for (int l = 0; l < seeds; l++)
            for (int n = 0; n < p.row; n++) rows[l * p.row + n] = lane(row[n], l);
    }

    // A vector of θ's size held by each seed's ties, in place: (1 - r) x + r Π x, where Π makes each entry the mean of
    // those that share its number (trainer/step/step.py, `apply_ties`). Π is symmetric, so this is its gradient too.
    void hold(Floats<L>* x, Floats<L> ramp, int seeds) {
        std::vector<float> sums(p.parameters + 1), counts(p.parameters + 1);
        for (int l = 0; l < seeds; l++) {
            const int32_t* its = ties + (size_t)l * p.parameters;
            const float r = lane(ramp, l);
            std::fill(sums.begin(), sums.end(), 0.0f), std::fill(counts.begin(), counts.end(), 0.0f);
            for (int n = 0; n < p.parameters; n++) {
                const float entry = lane(x[n], l);
                sums[std::abs(its[n])] += its[n] < 0 ? -entry : entry;
                counts[std::abs(its[n])] += 1;
            }
            for (int n = 0; n < p.parameters; n++) {
                const int k = std::abs(its[n]);
                const float mean = k ? sums[k] / counts[k] : 0.0f;
                lane(x[n], l) = (1 - r) * lane(x[n], l) + r * (its[n] < 0 ? -mean : mean);
            }
        }
    }

    // The gradient of the loss at the row's θ into its place in the row; the loss added to `losses`.
    void slope(const int64_t* data_seeds, Floats<L>* asked, int seeds, int32_t* tokens, float* losses) {
        if (ties) {
            free.assign(&row[p.theta], &row[p.theta] + p.parameters);
            hold(&row[p.theta], asked[ASK_RAMP], seeds);
        }
        expand.run(p.expand, row.data(), wide.data());
        if (ties) std::copy(free.begin(), free.end(), &row[p.theta]);
        to_rows<L>(wide.data(), wide.size(), seed_wide.data(), stride);
        for (int l = 0; l < seeds; l++) {
            const float* numbers = &seed_wide[l * stride];
            const auto ask = [&](Asked n) { return lane(asked[n], l); };
            Lesson its = lesson_of(data_seeds[l], (int64_t)lane(row[p.step], l), ask);
            if (p.targeted >= 0) {
                its.targeted = lane(row[p.targeted], l), its.errors = errors.count[l];
                its.error_a = errors.operands + (size_t)l * 2 * errors.kept, its.error_b = its.error_a + errors.kept;
            }
            problems(its, p.sequence, p.rows, p.batch, tokens);
            const Learning& from = p.learning;
            const Goal goal = {lane(row[from.alpha], l), lane(row[from.temperature], l), taught.data()};
            const Seen seen = {taught.data(), nullptr};
            Measures unread;
            if (from.teacher) from.teacher(from.wide, tokens, p.batch, &unread, &seen);
            losses[l] += p.train(numbers, tokens, p.batch, &seed_pull[l * stride], from.teacher ? &goal : nullptr);
        }
        from_rows<L>(seed_pull.data(), stride, pull.data(), pull.size());
        Floats<L>* gradient = expand.back(p.expand, pull.data()) + p.theta;
        if (ties) hold(gradient, asked[ASK_RAMP], seeds);
        std::copy_n(gradient, p.parameters, &row[p.gradient]);
    }

    // The gradient taken where `probe` says, of the same problems.
    void elsewhere(const int64_t* data_seeds, Floats<L>* asked, int seeds, int32_t* tokens) {
        float ignored[L] = {};
        there.resize(p.parameters);
        probe.run(p.probe, row.data(), there.data());
        std::swap_ranges(there.begin(), there.end(), &row[p.theta]);
        slope(data_seeds, asked, seeds, tokens, ignored);
        std::copy(there.begin(), there.end(), &row[p.theta]);
    }

    void step(const int64_t* data_seeds, int seeds, int32_t* tokens, float* losses) {
        Floats<L> asked[ASKED];
        lesson.run(p.lesson, row.data(), asked);
        slope(data_seeds, asked, seeds, tokens, losses);
        if (p.probe.outputs) elsewhere(data_seeds, asked, seeds, tokens);
        take.run(p.take, row.data(), made.data());
        for (int n = 0; n < p.take.outputs; n++) row[p.updated[n]] = made[n];
        row[p.step] += all<L>(1.0f);
    }

    void train(float* rows, const int64_t* data_seeds, const int32_t* seeds_ties, const Errors* seeds_errors, int seeds,
               int steps, float* losses) {
        ties = seeds_ties;
        if (seeds_errors) errors = *seeds_errors;
        std::vector<int32_t> tokens((size_t)blocks() * PER_BLOCK * p.sequence.length);
        read(rows, seeds);
        for (int n = 0; n < steps; n++) step(data_seeds, seeds, tokens.data(), losses);
        write(rows, seeds);
    }

    void evaluate(const float* rows, int seeds, const int32_t* tokens, int problems, Measures* sums) {
        read(rows, seeds);
        expand.run(p.expand, row.data(), wide.data());
        to_rows<L>(wide.data(), wide.size(), seed_wide.data(), stride);
        for (int l = 0; l < seeds; l++) p.evaluate(&seed_wide[l * stride], tokens, problems, sums + l, nullptr);
    }
};

extern "C" {
// `rows` [seeds][row], at most 16 seeds; `ties` [seeds][parameters] or none (model/tied.py); `errors`: or none; `losses`
// [seeds]: the sum over steps is added.
void engine_train(const Program* p, float* rows, const int64_t* data_seeds, const int32_t* ties, const Errors* errors,
                  int seeds, int steps, float* losses) {
    const Flush flush;
    if (seeds == 1) std::make_unique<Group<1>>(*p)->train(rows, data_seeds, ties, errors, seeds, steps, losses);
    else if (seeds <= 4) std::make_unique<Group<4>>(*p)->train(rows, data_seeds, ties, errors, seeds, steps, losses);
    else std::make_unique<Group<16>>(*p)->train(rows, data_seeds, ties, errors, seeds, steps, losses);
}

void engine_evaluate(const Program* p, const float* rows, int seeds, const int32_t* tokens, int problems,
                     Measures* sums) {
    const Flush flush;
    if (seeds == 1) std::make_unique<Group<1>>(*p)->evaluate(rows, seeds, tokens, problems, sums);
    else if (seeds <= 4) std::make_unique<Group<4>>(*p)->evaluate(rows, seeds, tokens, problems, sums);
    else std::make_unique<Group<16>>(*p)->evaluate(rows, seeds, tokens, problems, sums);
}

// A step's problems as the engine makes them, for tests.
void engine_problems(const Program* p, const Lesson* l, int32_t* tokens) {
    problems(*l, p->sequence, p->rows, p->batch, tokens);
}

// A tape on its own, one lane: outputs from inputs, and, where `pull` is given, the inputs' gradient.
void engine_tape(const Tape* t, const float* input, float* output, const float* pull, float* gradient) {
    const Flush flush;
    Registers<1> registers;
    registers.fit(*t);
    registers.run(*t, (const Floats<1>*)input, (Floats<1>*)output);
    if (pull) std::memcpy(gradient, registers.back(*t, (const Floats<1>*)pull), sizeof(float) * t->inputs);
}
}
