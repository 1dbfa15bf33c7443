// exp, log, sin, cos and GELU in operations of lanes.h, which includes this.
#pragma once

// exp(x) for x up to 88, relative error 2e-7 near 0 and 1e-7 |x| far from it. Below -87 it is exp(-87), so that nothing
// downstream is denormal for its sake. x = n ln 2 + f ln 2 with n whole: adding 1.5 · 2^23 rounds to n and leaves it
// in the low bits, from where it is added to the exponent of 2^f, a minimax polynomial on [-1/2, 1/2].
T Floats<L> exponential(Floats<L> x) {
    const Floats<L> magic = all<L>(12582912.0f), to_two = all<L>(1.44269504f);
    x = above<L>(all<L>(-87.0f), x);
    Floats<L> moved = fma<L>(x, to_two, magic), f = fma<L>(x, to_two, magic - moved);
    Floats<L> p = all<L>(1.326472731e-3f);
    p = fma<L>(p, f, all<L>(9.671512991e-3f));
    p = fma<L>(p, f, all<L>(5.550733581e-2f));
    p = fma<L>(p, f, all<L>(2.402224243e-1f));
    p = fma<L>(p, f, all<L>(6.931470037e-1f));
    p = fma<L>(p, f, all<L>(1.0f));
    return scaled<L>(p, bits<L>(moved));
}

// log(x) of a normal positive number, absolute error 1e-7 around 1 and relative beyond.
T Floats<L> logarithm(Floats<L> x) {
    Ints<L> b = bits<L>(x), e = shifted_down<L>(b - all<L>((int32_t)0x3f3504f3));
    b = b - shifted_up<L>(e);  // what is left lies between sqrt(1/2) and sqrt(2)
    Floats<L> m = floats<L>(b), f = (m - all<L>(1.0f)) / (m + all<L>(1.0f)), s = f * f;
    Floats<L> p = all<L>(2.0f / 9);
    p = fma<L>(p, s, all<L>(2.0f / 7));
    p = fma<L>(p, s, all<L>(2.0f / 5));
    p = fma<L>(p, s, all<L>(2.0f / 3));
    p = fma<L>(p, s, all<L>(2.0f));
    return fma<L>(real<L>(e), all<L>(0.69314718f), p * f);
}

// sin(x), or cos(x) with `quarter` 1: absolute error 2e-7 for |x| up to some thousands, no number beyond 100,000, where
// nothing would be left of it. Multiples of pi/2 are taken off in three parts; the polynomials are the Cephes library's.
T Floats<L> sine(Floats<L> x, int quarter) {
    Floats<L> k = down<L>(fma<L>(x, all<L>(0.636619772f), all<L>(0.5f)));
    Floats<L> f = fma<L>(k, all<L>(-1.5703125f), x);
    f = fma<L>(k, all<L>(-4.837512969970703125e-4f), f);
    f = fma<L>(k, all<L>(-7.54978995489188e-8f), f);
    Floats<L> s = f * f;
    Floats<L> p = fma<L>(s, all<L>(-1.9515295891e-4f), all<L>(8.3321608736e-3f));
    p = fma<L>(fma<L>(p, s, all<L>(-1.6666654611e-1f)) * s, f, f);
    Floats<L> q = fma<L>(s, all<L>(2.443315711809948e-5f), all<L>(-1.388731625493765e-3f));
    q = fma<L>(q, s, all<L>(4.166664568298827e-2f));
    q = fma<L>(q * s, s, fma<L>(s, all<L>(-0.5f), all<L>(1.0f)));
    Ints<L> turn = whole<L>(k) + all<L>((int32_t)quarter), one = all<L>((int32_t)1), two = all<L>((int32_t)2);
    Floats<L> o = select<L>((turn & one) == one, q, p);
    o = select<L>((turn & two) == two, -o, o);
    return select<L>(all<L>(1e5f) >= magnitude<L>(x), o, floats<L>(all<L>((int32_t)0x7fc00000)));
}

// GELU and its slope at x, from erf with an absolute error of 1.5e-7 (Abramowitz and Stegun, 7.1.26).
T void gelu(Floats<L> x, Floats<L>& value, Floats<L>& slope) {
    Floats<L> t = all<L>(1.0f) / fma<L>(magnitude<L>(x), all<L>(0.3275911f * 0.70710678f), all<L>(1.0f));
    Floats<L> e = exponential<L>(x * x * all<L>(-0.5f));
    Floats<L> p = all<L>(1.061405429f);
    p = fma<L>(p, t, all<L>(-1.453152027f));
    p = fma<L>(p, t, all<L>(1.421413741f));
    p = fma<L>(p, t, all<L>(-0.284496736f));
    p = fma<L>(p, t, all<L>(0.254829592f));
    Floats<L> tail = all<L>(0.5f) * (p * t) * e;
    Floats<L> phi = select<L>(x > all<L>(0.0f), all<L>(1.0f) - tail, tail);
    value = x * phi;
    slope = fma<L>(x * all<L>(0.39894228f), e, phi);
}
