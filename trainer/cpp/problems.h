// The problems of trainer/problems.py, token for token: whole numbers in double, exact everywhere.
#pragma once

#include <cmath>
#include <cstdint>

constexpr int DIGITS = 10, COLUMNS = 3 * DIGITS + 1, PER_BLOCK = 16;
constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull, STREAM = 0xD1B54A32D192ED03ull;
constexpr uint64_t APART = 0xA24BAED4963EE407ull;

inline uint64_t mixed(uint64_t w) {  // SplitMix64's finaliser
    w = (w ^ (w >> 30)) * 0xBF58476D1CE4E5B9ull;
    w = (w ^ (w >> 27)) * 0x94D049BB133111EBull;
    return w ^ (w >> 31);
}

inline double fraction(uint64_t word, int low, int bits) {  // `bits` bits from bit `low` up, in [0, 1)
    return (double)(int64_t)((word >> low) & ((1ull << bits) - 1)) * (1.0 / (double)(1ull << bits));
}

struct Powers {
    double ten[DIGITS + 1], five[DIGITS + 1], inverse[DIGITS];
    Powers() {
        ten[0] = five[0] = 1;
        for (int n = 1; n <= DIGITS; n++) ten[n] = ten[n - 1] * 10, five[n] = five[n - 1] * 5;
        for (int n = 0; n < DIGITS; n++) inverse[n] = 1 / five[n];
    }
};
static const Powers POWERS;

// A number whose decimal digits are uniform in 0..4, as many as `fives` = 5^n says.
inline double low_digits(double u, double fives) {
    double t = std::floor(u * fives), number = t;
    for (int i = 1; i < DIGITS; i++) number += std::floor((t + 0.5) * POWERS.inverse[i]) * (5.0 * POWERS.ten[i - 1]);
    return number;
}

struct Lesson {  // what a step asks for: trainer/problems.py, `sample`
    int64_t data_seed, step;
    double carry_mix, mixed_lengths;
    double single, chain, place;  // where kinds have shares of their own: of this kind and those before it
    int32_t digits, by_kind, fewest, most;  // most, fewest: the columns that a carry problem uses
};

inline void operands(const Lesson& l, uint64_t key, int problem, double& a, double& b) {
    const uint64_t counter = key + (uint64_t)problem * (4 * GOLDEN);
    const uint64_t wa = mixed(counter + GOLDEN), wb = mixed(counter + 2 * GOLDEN);
    const uint64_t wk = mixed(counter + 3 * GOLDEN), we = mixed(counter + 4 * GOLDEN);
    const double u = fraction(wa, 11, 53), v = fraction(wb, 11, 53);
    const double which = fraction(wk, 32, 32);
    if (!(which < l.carry_mix)) {
        const int n = 1 + (int)std::floor(fraction(we, 0, 21) * l.digits);
        const double limit = POWERS.ten[fraction(wk, 2, 30) < l.mixed_lengths ? n : l.digits];
        a = std::floor(u * limit), b = std::floor(v * limit);
        return;
    }
    const int n = l.fewest + (int)std::floor(fraction(we, 0, 21) * (l.most - l.fewest + 1));
    const double tens = POWERS.ten[n], place = POWERS.ten[(int)std::floor(fraction(we, 21, 21) * n)];
    const double g = fraction(we, 42, 21);
    switch (l.by_kind ? (which >= l.single) + (which >= l.chain) + (which >= l.place) : (int)(wk & 3)) {
    case 0:  // single
        a = low_digits(u, POWERS.five[n]) + 5 * place, b = low_digits(v, POWERS.five[n]) + 5 * place;
        return;
    case 1:  // chain
        a = tens - 1, b = 1 + std::floor(v * (tens < 1000 ? tens : 1000));
        return;
    case 2: {  // place
        const double lowest = std::floor((tens + 5) * 0.1);
        a = lowest + std::floor(u * (tens - lowest)), b = (1 + std::floor(g * 9)) * place;
        return;
    }
    default:  // boundary
        a = tens - 1 - std::floor(g * 10), b = 1 + std::floor(v * 20);
    }
}

// Where a sequence's tokens come from: a column (x's ten digits, y's, then eleven of z, units first), or, below 0,
// the token -1 - n itself.
struct Sequence {
    int length;
    const int32_t* source;
};

// The tokens [blocks][length][16] of a step's problems; the lanes after the last problem get its like.
inline void problems(const Lesson& l, const Sequence& sequence, int batch, int32_t* tokens) {
    const uint64_t key = mixed(mixed((uint64_t)l.data_seed * GOLDEN + STREAM) + (uint64_t)l.step * GOLDEN);
    for (int first = 0; first < batch; first += PER_BLOCK, tokens += PER_BLOCK * sequence.length) {
        double a[PER_BLOCK], b[PER_BLOCK], z[PER_BLOCK];
        int32_t column[COLUMNS][PER_BLOCK];
        for (int i = 0; i < PER_BLOCK; i++) {
            operands(l, key, first + i, a[i], b[i]);
            z[i] = a[i] + b[i];
        }
        double* numbers[] = {a, b, z};
        for (int which = 0, c = 0; which < 3; which++) {
            double* left = numbers[which];
            for (int digit = 0; digit < DIGITS + (which == 2); digit++, c++) {
                for (int i = 0; i < PER_BLOCK; i++) {
                    const double above = std::floor((left[i] + 0.5) * 0.1);
                    column[c][i] = (int32_t)(left[i] - 10 * above);
                    left[i] = above;
                }
            }
        }
        for (int t = 0; t < sequence.length; t++) {
            const int from = sequence.source[t];
            for (int i = 0; i < PER_BLOCK; i++) tokens[t * PER_BLOCK + i] = from < 0 ? -1 - from : column[from][i];
        }
    }
}
