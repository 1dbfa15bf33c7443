// Training and evaluation by the CPU engine in a program of its own, for another kind of CPU (tests/arm.py).
#include <fstream>

#include "engine.cpp"

extern "C" {
float kernel_train(const float* wide, const int32_t* tokens, int problems, float* gradient, const Goal* goal);
void kernel_evaluate(const float* wide, const int32_t* tokens, int problems, Measures* sums, const Seen* seen);
}

static std::ifstream given;

template <class E> std::vector<E> read() {
    int64_t count = 0;
    given.read((char*)&count, sizeof count);
    std::vector<E> entries(count);
    given.read((char*)entries.data(), count * sizeof(E));
    return entries;
}

// A tape, with the arrays to which it points.
struct OwnedTape {
    const int inputs = read<int32_t>()[0];
    const std::vector<float> constants = read<float>();
    const std::vector<int32_t> blocks = read<int32_t>();  // three numbers each
    const std::vector<int32_t> a = read<int32_t>(), b = read<int32_t>(), c = read<int32_t>(), outputs = read<int32_t>();

    Tape view() const {
        const int sizes[] = {(int)constants.size(), (int)a.size(), (int)blocks.size() / 3, (int)outputs.size()};
        const Block* block = (const Block*)blocks.data();
        return {inputs, sizes[0], sizes[1], sizes[2], sizes[3], constants.data(), block,
                a.data(), b.data(), c.data(), outputs.data()};
    }
};

// FILE: what `sent` of tests/arm.py writes. OUT gets the rows, the losses and the sums over the evaluated problems.
int main(int, char** words) {
    given.open(words[1], std::ios::binary);
    const OwnedTape lesson, expand, probe, take;
    const auto source = read<int32_t>(), numbers = read<int32_t>(), updated = read<int32_t>();
    const Sequence sequence = {(int32_t)source.size(), source.data()};
    const Program program = {lesson.view(), expand.view(), probe.view(), take.view(), sequence, {}, numbers[0], numbers[1],
                             numbers[2], numbers[3], numbers[4], numbers[5], updated.data(), kernel_train,
                             kernel_evaluate, {}, -1};
    auto rows = read<float>();
    const auto data_seeds = read<int64_t>();
    const auto ties = read<int32_t>(), problems = read<int32_t>(), run = read<int32_t>();
    const int seeds = data_seeds.size(), steps = run[0], count = run[1];
    std::vector<float> losses(seeds);
    std::vector<Measures> sums(seeds);
    engine_train(&program, rows.data(), data_seeds.data(), ties.empty() ? nullptr : ties.data(), nullptr, seeds, steps,
                 losses.data());
    engine_evaluate(&program, rows.data(), seeds, problems.data(), count, sums.data());
    std::ofstream out(words[2], std::ios::binary);
    out.write((const char*)rows.data(), rows.size() * sizeof(float));
    out.write((const char*)losses.data(), losses.size() * sizeof(float));
    out.write((const char*)sums.data(), sums.size() * sizeof(Measures));
    return given ? 0 : 1;
}
