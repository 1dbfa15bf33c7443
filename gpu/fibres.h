// Threads of a GPU that run together, as fibres of one thread. A meeting hands on to the next fibre, so that a round of
// them is a barrier. What nobody has written is no number (NaN).
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#ifndef TOGETHER_IN_FIBRES
#define TOGETHER_IN_FIBRES 16
#endif
constexpr int FIBRE_COUNT = TOGETHER_IN_FIBRES;

struct Fibre {
    jmp_buf at;
    ucontext_t start;
    bool begun;
    int64_t meetings;
    uint32_t parity;
    char* stack;
};
constexpr size_t FIBRE_STACK = 1 << 18;
static thread_local Fibre fibres[FIBRE_COUNT];
static thread_local ucontext_t home;
static thread_local int current;
static thread_local float post[2][FIBRE_COUNT], *memory;
static thread_local void (*body)(void*);
static thread_local void* argument;

static void hand_on(int to) {
    current = to;
    if (fibres[to].begun) _longjmp(fibres[to].at, 1);
    fibres[to].begun = true;
    setcontext(&fibres[to].start);
}

void meet() {
    Fibre& own = fibres[current];
    own.meetings++;
    if (!_setjmp(own.at)) hand_on((current + 1) % FIBRE_COUNT);
}

float across(float x, int apart) {
    const int own = current;
    float* here = post[fibres[own].parity ^= 1];
    here[own] = x;
    meet();
    return here[own ^ apart];
}

static void fibre() {
    body(argument);
    if (current == FIBRE_COUNT - 1) setcontext(&home);
    hand_on(current + 1);
}

// Runs `work` on all fibres, whose common memory is `words` numbers. True if all have met equally often.
static bool run_fibres(int words, void (*work)(void*), void* with) {
    memory = (float*)std::aligned_alloc(64, (words + 16) / 16 * 64);
    std::memset((void*)memory, 0xff, words * sizeof(float));
    body = work, argument = with, current = 0;
    for (Fibre& f : fibres) {
        f.begun = false, f.meetings = 0, f.parity = 0;
        if (!f.stack) f.stack = (char*)std::malloc(FIBRE_STACK);
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = f.stack, f.start.uc_stack.ss_size = FIBRE_STACK, f.start.uc_link = nullptr;
        makecontext(&f.start, fibre, 0);
    }
    fibres[0].begun = true;
    swapcontext(&home, &fibres[0].start);
    std::free(memory);
    for (const Fibre& f : fibres)
        if (f.meetings != fibres[0].meetings) return false;
    return true;
}
