// Products, quotients, fused multiply-adds and sums beside the smallest normal number, as the engine computes them.
#include <cstdio>
#include <initializer_list>

#include "flush.h"
#include "lanes.h"

// Reads a, b, c [16] at a time; writes a * b, a / b, a * b + c and a + b.
int main() {
    const Flush flush;
    float given[3][16], made[16];
    while (std::fread(given, sizeof given, 1, stdin) == 1) {
        const Floats<16> a = load<16>(given[0]), b = load<16>(given[1]), c = load<16>(given[2]);
        for (const Floats<16> result : {a * b, a / b, fma<16>(a, b, c), a + b}) {
            store<16>(made, result);
            std::fwrite(made, sizeof made, 1, stdout);
        }
    }
}
