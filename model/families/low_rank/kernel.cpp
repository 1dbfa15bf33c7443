// The low_rank family from its wide tensors on: everything that depends on the problem, and its gradient.
//
// Compiled for one shape: WIDTH, FFN, INNER (the rank of the FFN's factors; 0: none), RANK channels of queries, keys and
// values, VALUES (they are read apart from keys), LAYER (LayerNorm, not RMSNorm), ANSWERS. The wide tensors are those
// of `expand` (forward.py), in its order; with LAYER, what reads a norm has a last column, its bias.
#include "kernel.h"

constexpr int VOCABULARY = 14, PROMPT = 22, FIRST = PROMPT - 1, POSITIONS = FIRST + ANSWERS;
constexpr int COLUMNS = WIDTH + LAYER, SEEN = VALUES ? 2 * RANK : RANK;
constexpr float EPS = LAYER ? 1e-5f : 1e-8f;
constexpr float BOUND = 30;  // of scores whose exponentials are taken as they are: far from float's ends

#include "kernel_linear.h"

template <class E> struct WideOf {
    E tokens[VOCABULARY][WIDTH], positions[POSITIONS][WIDTH];
    E queries[RANK][COLUMNS], reads[SEEN][COLUMNS], write[WIDTH][RANK];  // reads: keys, then values
    Linear<E, FFN, COLUMNS, INNER> fc1;
    Linear<E, WIDTH, FFN, INNER> fc2;
    E head[VOCABULARY][COLUMNS];
};
typedef WideOf<float> Wide;
typedef WideOf<V> Gradient;  // a lane each for problems, or tokens; the sum over lanes is what is wanted
constexpr int SIZE = sizeof(Wide) / sizeof(float);

#include "kernel_inputs.h"

#include "kernel_attention.h"

#include "kernel_answer.h"

struct Work {
    Inputs inputs;
    Attention attention;
    Answers answers;

    // A block, step by step for all its answers: while one waits for a root or a sum, the others work.
    template <bool TRAIN> V solve(const Wide& __restrict w, const int32_t* block, const Aim& aim) {
        V query[ANSWERS][RANK];
        Answers& k = answers;
        attention.begin<TRAIN>(inputs, block);
        for (int a = 0; a < ANSWERS; a++) {
            I here = of(block, FIRST + a);
            for (int r = 0; r < RANK; r++) query[a][r] = at_token(inputs.queries[a][r], here);
            for (int i = 0; i < WIDTH; i++) k.stream[a][i] = at_token(inputs.stream[a][i], here);
            attention.forward(a, inputs.bounded[a], query[a], k.channels[a]);
        }
        k.forward(w);
        V loss = k.judge<TRAIN>(block + PROMPT * LANES, aim);
        if (!TRAIN) return loss;
        k.backward(w);
        for (int a = 0; a < ANSWERS; a++) {
            V dquery[RANK];
            const int32_t* token = block + (FIRST + a) * LANES;
            attention.backward(a, query[a], k.channels[a], k.dchannels[a], dquery);
            inputs.dstream[a].add(token, k.dstream[a]);
            inputs.dqueries[a].add(token, dquery);
        }
        for (int t = 0; t < POSITIONS; t++) inputs.dreads[t].add(block + t * LANES, attention.dreads[t]);
        return loss;
    }
};

static __attribute__((noinline)) Work& work_of_thread() {
    Work& work = own<Work>();
    return work;
}

template <bool TRAIN>
static V run(const Wide& w, const int32_t* tokens, int problems, Measures* m, Gradient& g, const Goal* goal,
             const Seen* seen = nullptr) {
    Work& work = work_of_thread();
    V loss = one(0);
    work.inputs.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const int32_t* block = tokens + b * LANES * (POSITIONS + 1);
        I counted = first_lanes(problems - b * LANES), exact = counted;
        const Aim aim = aim_of(goal, b, counted, problems, ANSWERS, VOCABULARY);
        V block_loss = select(counted, weighed(aim, work.solve<TRAIN>(w, block, aim)), one(0));
        loss += block_loss;
        if (TRAIN) {
            work.answers.add_to(g);
        } else {
            for (int a = 0; a < 11; a++) {
                I right = is_right<VOCABULARY>(work.answers.logits[a], of(block, PROMPT + a)) & counted;
                exact = exact & right;
                m->right += count(right);
            }
            m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
            for (int a = 0; a < ANSWERS; a++) see(seen, b * ANSWERS + a, VOCABULARY, work.answers.logits[a]);
            see_losses(seen, b, ANSWERS, block_loss);
        }
    }
    if (TRAIN) work.inputs.finish(w, g);
    return loss;
}

extern "C" {
int kernel_size(void) { return SIZE; }
int kernel_length(void) { return POSITIONS + 1; }

float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal) {
    Gradient& g = own<Gradient>();
    std::memset(&g, 0, sizeof g);
    V loss = run<true>(*(const Wide*)wide, tokens, problems, nullptr, g, goal);
    totals((const V*)&g, SIZE, gradient);
    return total(loss) / ((float)ANSWERS * problems);
}

void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums) {
    *sums = {0, 0, 0};
    run<false>(*(const Wide*)wide, tokens, problems, sums, *(Gradient*)nullptr, nullptr);
}

#if LOSS
void kernel_look(const float* wide, const int32_t* tokens, int problems, const Seen* seen) {
    Measures unread = {0, 0, 0};
    run<false>(*(const Wide*)wide, tokens, problems, &unread, *(Gradient*)nullptr, nullptr, seen);
}
#endif
}
