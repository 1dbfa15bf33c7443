// A team of 16 threads trains a seed, a problem a thread: half a warp of a GPU or, in tests, fibres of a CPU.
//
// The TEAMS of a warp, two or one, do the same, so that they always meet together: a mask known when this is compiled costs
// nothing.
#pragma once

#ifdef FIBRES  // gpu/emulator.cpp has what is declared here
#include <cmath>
#include <cstring>
#define INLINE_MEMBER inline __attribute__((always_inline))
#define APART __attribute__((noinline))
#define CONSTANT static constexpr
#define ONCE static __attribute__((noinline))
int lane_of();
void meet();
float across(float x, int apart);  // of the thread whose number differs in this bit
float* team_memory(int number);  // what the team's threads share, from this number on
INLINE_MEMBER int32_t bits_of(float x) { int32_t b; std::memcpy(&b, &x, 4); return b; }
INLINE_MEMBER float float_of(int32_t b) { float x; std::memcpy(&x, &b, 4); return x; }
INLINE_MEMBER float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE_MEMBER float root_of(float x) { return __builtin_sqrtf(x); }
INLINE_MEMBER float floor_of(float x) { return __builtin_floorf(x); }
INLINE_MEMBER float magnitude(float x) { return __builtin_fabsf(x); }
INLINE_MEMBER double floor_of(double x) { return __builtin_floor(x); }
INLINE_MEMBER double ceil_of(double x) { return __builtin_ceil(x); }
#else
#ifndef TEAMS
#define TEAMS 2
#endif
#define INLINE_MEMBER __forceinline__
#define APART __forceinline__
#define CONSTANT __device__ constexpr
#define ONCE static __noinline__  // called from several places, inlined in none
extern __shared__ float shared_memory[];
INLINE_MEMBER float* team_memory(int number) { return shared_memory + number; }
INLINE_MEMBER int lane_of() { return threadIdx.x & 15; }
constexpr unsigned WARP = TEAMS == 2 ? 0xffffffffu : 0xffffu;  // a bit for each thread of a block
INLINE_MEMBER void meet() { __syncwarp(WARP); }
INLINE_MEMBER float across(float x, int apart) { return __shfl_xor_sync(WARP, x, apart); }
INLINE_MEMBER int32_t bits_of(float x) { return __float_as_int(x); }
INLINE_MEMBER float float_of(int32_t b) { return __int_as_float(b); }
INLINE_MEMBER float fma_of(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE_MEMBER float root_of(float x) { return __fsqrt_rn(x); }
INLINE_MEMBER float floor_of(float x) { return floorf(x); }
INLINE_MEMBER float magnitude(float x) { return fabsf(x); }
INLINE_MEMBER double floor_of(double x) { return floor(x); }
INLINE_MEMBER double ceil_of(double x) { return ceil(x); }
#endif
#define INLINE static INLINE_MEMBER
