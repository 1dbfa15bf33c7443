// The low_rank family from its wide tensors on: everything that depends on the problem, and its gradient.
//
// Compiled for one shape: WIDTH, FFN, INNER (the rank of the FFN's factors; 0: none), RANK channels of queries, keys and
// values, VALUES (they are read apart from keys), LAYER (LayerNorm, not RMSNorm), ANSWERS. The wide tensors are those
// of `expand` (forward.py), in its order; with LAYER, what reads a norm has a last column, to which 1 is read.
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

// What a block's answers leave for the gradient of the matrices.
struct Kept {
    V channels[ANSWERS][RANK], dstream[ANSWERS][WIDTH];
    V before_ffn[ANSWERS][COLUMNS], dhidden[ANSWERS][FFN], hidden[ANSWERS][FFN], dout[ANSWERS][WIDTH];
    V before_head[ANSWERS][COLUMNS], dlogits[ANSWERS][VOCABULARY];
    Between<INNER> fc1, fc2;

    void add_to(Gradient& g) const {
        add_products(g.write, dstream, channels);
        add_products(g.fc1, dhidden, fc1, before_ffn);
        add_products(g.fc2, dout, fc2, hidden);
        add_products(g.head, dlogits, before_head);
    }
};

// The block after attention at answer a, from its input to logits and back: the gradient of the input is left in
// k.dstream. `share`: what a problem's loss counts, 0 where a lane is empty. Returns the loss.
template <bool TRAIN>
INLINE V answer(const Wide& __restrict w, const V* input, Kept& __restrict k, int a, I target, V share, V* logits) {
    V x[WIDTH], y[WIDTH], z[FFN], slope[FFN];
    times(w.write, k.channels[a], x);
    for (int i = 0; i < WIDTH; i++) x[i] += input[i];
    V s1 = norm(x, k.before_ffn[a]);
    times(w.fc1, k.before_ffn[a], k.fc1.it[a], z);
    for (int f = 0; f < FFN; f++) gelu(z[f], k.hidden[a][f], slope[f]);
    times(w.fc2, k.hidden[a], k.fc2.it[a], y);
    for (int i = 0; i < WIDTH; i++) y[i] += x[i];
    V s2 = norm(y, k.before_head[a]);
    times(w.head, k.before_head[a], logits);

    V high = logits[0], sum = one(0), right = one(0), q[VOCABULARY];
    for (int v = 1; v < VOCABULARY; v++) high = above(high, logits[v]);
    for (int v = 0; v < VOCABULARY; v++) {
        sum += q[v] = exponential(logits[v] - high);
        right = select(target == all<LANES>(v), logits[v], right);
    }
    V loss = logarithm(sum) + (high - right);
    if (!TRAIN) return loss;

    V inverse = share / sum, dh[COLUMNS], dx[WIDTH], dz[FFN];
    for (int v = 0; v < VOCABULARY; v++) {
        V d = q[v] * inverse;
        k.dlogits[a][v] = select(target == all<LANES>(v), d - share, d);
    }
    times_back(w.head, k.dlogits[a], dh);
    norm_back(k.before_head[a], s2, dh, k.dout[a]);
    times_back(w.fc2, k.dout[a], k.fc2.d[a], dz);
    for (int f = 0; f < FFN; f++) k.dhidden[a][f] = dz[f] * slope[f];
    times_back(w.fc1, k.dhidden[a], k.fc1.d[a], dh);
    norm_back(k.before_ffn[a], s1, dh, dx);
    for (int i = 0; i < WIDTH; i++) k.dstream[a][i] = dx[i] + k.dout[a][i];
    return loss;
}

struct Work {
    Inputs inputs;
    Attention attention;
    Kept kept;
};

// One answer of a block, attention included.
template <bool TRAIN>
static V solve(const Wide& w, Work& work, const int32_t* block, int a, V share, V* logits) {
    Inputs& inputs = work.inputs;
    V query[RANK], input[WIDTH];
    I here = of(block, FIRST + a);
    for (int r = 0; r < RANK; r++) query[r] = at_token(inputs.queries[a][r], here);
    for (int i = 0; i < WIDTH; i++) input[i] = at_token(inputs.stream[a][i], here);
    V* channels = work.kept.channels[a];
    work.attention.forward(a, inputs.bounded[a], query, channels);
    V loss = answer<TRAIN>(w, input, work.kept, a, of(block, PROMPT + a), share, logits);
    if (!TRAIN) return loss;
    V dchannels[RANK], dquery[RANK];
    const int32_t* token = block + (FIRST + a) * LANES;
    times_back(w.write, work.kept.dstream[a], dchannels);
    work.attention.backward(a, query, channels, dchannels, dquery);
    inputs.dstream[a].add(token, work.kept.dstream[a]);
    inputs.dqueries[a].add(token, dquery);
    return loss;
}

template <bool TRAIN>
static V run(const Wide& w, const int32_t* tokens, int problems, Measures* m, Gradient& g) {
    static thread_local Work work;
    V loss = one(0), logits[VOCABULARY];
    work.inputs.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const int32_t* block = tokens + b * LANES * (POSITIONS + 1);
        I counted = first_lanes(problems - b * LANES), exact = counted;
        V share = select(counted, one(1.0f / ((float)ANSWERS * problems)), one(0)), block_loss = one(0);
        work.attention.begin<TRAIN>(work.inputs, block);
        for (int a = 0; a < ANSWERS; a++) {
            block_loss += solve<TRAIN>(w, work, block, a, share, logits);
            if (!TRAIN && a < 11) {
                I right = is_right<VOCABULARY>(logits, of(block, PROMPT + a)) & counted;
                exact = exact & right;
                m->right += count(right);
            }
        }
        block_loss = select(counted, block_loss, one(0));
        loss += block_loss;
        if (TRAIN) {
            work.kept.add_to(g);
            for (int t = 0; t < POSITIONS; t++) work.inputs.dreads[t].add(block + t * LANES, work.attention.dreads[t]);
        } else {
            m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
        }
    }
    if (TRAIN) work.inputs.finish(w, g);
    return loss;
}

extern "C" {
int kernel_size(void) { return SIZE; }
int kernel_length(void) { return POSITIONS + 1; }

float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient) {
    static thread_local Gradient g;
    std::memset(&g, 0, sizeof g);
    V loss = run<true>(*(const Wide*)wide, tokens, problems, nullptr, g);
    for (int n = 0; n < SIZE; n++) gradient[n] = total(((const V*)&g)[n]);
    return total(loss) / ((float)ANSWERS * problems);
}

void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums) {
    *sums = {0, 0, 0};
    run<false>(*(const Wide*)wide, tokens, problems, sums, *(Gradient*)nullptr);
}
}
