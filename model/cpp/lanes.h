// Vectors of L float lanes that give the same bits everywhere: entries of a CPU's registers (lanes_vector.h), or a thread
// each of a team on a GPU (lanes_thread.h), where a vector is a number that every thread has of its own.
//
// What makes the bits equal: every operation here is exactly rounded by IEEE 754 (sums, products, quotients, square
// roots, fused multiply-adds that are written as such), the compiler may not contract or reorder (-ffp-contract=off,
// --fmad=false, no -ffast-math), the transcendental functions are polynomials of ours, and lanes never meet but in
// `total`, whose order is fixed. Denormal numbers are 0 (flush.h, --ftz=true).
//
// Stages are written for a range of answers, problems for a range of lanes. A CPU takes all of them at once, so that
// chains of operations overlap; a thread takes one after another and keeps it in registers.
#pragma once

#include <cstdint>

#define T template <int L> INLINE
#if defined(__CUDACC_RTC__) || defined(FIBRES)
#define THREADS 1
#include "lanes_thread.h"
#else
#define THREADS 0
#include "lanes_vector.h"
#endif

T Floats<L>& operator+=(Floats<L>& a, Floats<L> b) { return a = a + b; }
T Floats<L>& operator*=(Floats<L>& a, Floats<L> b) { return a = a * b; }
T Floats<L> magnitude(Floats<L> x) { return floats<L>(bits<L>(x) & all<L>((int32_t)0x7fffffff)); }
// The larger and the smaller; of a number and none (NaN) none.
T Floats<L> largest(Floats<L> a, Floats<L> b) { return select<L>((a > b) | (a != a), a, b); }
T Floats<L> smallest(Floats<L> a, Floats<L> b) { return select<L>((b > a) | (a != a), a, b); }

#include "polynomials.h"
#undef T
