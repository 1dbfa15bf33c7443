// What a step's problems are learnt by (model/cpp/goal.h): a seed's numbers, the weights of its problems, a teacher's logits.
// trainer/step/objective.py says the same in torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "goal.h"

typedef void (*Look)(const float* wide, const int32_t* tokens, int problems, const Seen* seen);

// Places in a seed's row; below 0 what is off.
struct Learning {
    int32_t on;  // whether it is more than cross-entropy: the kernel is built with LOSS then
    int32_t smoothing, gamma, chains, hardest, alpha, temperature;
    int32_t logits;  // numbers of a block's logits
    Look look, teacher;  // the seed's own kernel, and a teacher's
    const float* teachers;  // the teacher's wide tensors
};

struct Aims {
    std::vector<float> weights, losses, logits;
    std::vector<int32_t> chain, order;  // of each problem: its longest run of carries
    Goal goal;

    void fit(const Learning& p, int blocks, int lanes) {
        if (!p.on) return;
        weights.resize(blocks * lanes), losses.resize(blocks * lanes), chain.resize(blocks * lanes);
        if (p.teacher) logits.resize((size_t)blocks * p.logits);
    }

    int32_t* chains(const Learning& p) { return p.on && p.chains >= 0 ? chain.data() : nullptr; }

    // The goal of a step's problems, whose chains are known; `number` reads a seed's row.
    template <class F> const Goal* of(const Learning& p, F number, const float* wide, const int32_t* tokens, int problems) {
        if (!p.on) return nullptr;
        const auto given = [&](int place) { return place < 0 ? 0.0f : number(place); };
        goal = {given(p.smoothing), given(p.gamma), given(p.alpha), given(p.temperature), nullptr, nullptr};
        if (p.chains >= 0 || p.hardest >= 0) {
            weigh(p, given(p.chains), given(p.hardest), wide, tokens, problems);
            goal.weights = weights.data();
        }
        if (p.teacher) {
            const Seen seen = {logits.data(), nullptr};
            p.teacher(p.teachers, tokens, problems, &seen);
            goal.teacher = logits.data();
        }
        return &goal;
    }

    // 1 in the mean: 1 + beta chain / 10 of those that count, which are the `share` with the largest cross-entropy.
    void weigh(const Learning& p, float beta, float share, const float* wide, const int32_t* tokens, int problems) {
        order.resize(problems);
        std::iota(order.begin(), order.end(), 0);
        if (p.hardest >= 0) {
            const Seen seen = {nullptr, losses.data()};
            p.look(wide, tokens, problems, &seen);
            for (float& loss : losses) loss = loss == loss ? loss : 3e38f;
            const int count = std::max(1, (int)((double)share * problems + 0.5));
            std::nth_element(order.begin(), order.begin() + (count - 1), order.end(), [&](int i, int j) {
                return losses[i] > losses[j] || (losses[i] == losses[j] && i < j);
            });
            order.resize(count);
        }
        int64_t length = 0;
        for (int i : order) length += p.chains < 0 ? 0 : chain[i];
        const double whole = order.size() + (double)beta * length / 10;
        std::fill(weights.begin(), weights.end(), 0.0f);
        for (int i : order) weights[i] = (float)((1 + (p.chains < 0 ? 0 : (double)beta * chain[i] / 10)) * problems / whole);
    }
};
