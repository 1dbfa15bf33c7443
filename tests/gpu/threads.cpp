// Training by the CUDA engine (threads.py), a team as sixteen threads, which ThreadSanitizer watches.
#include <fstream>
#include <pthread.h>
#include <thread>
#include <vector>

#include "engine.h"
#include "flush.h"

constexpr int TEAM = 16;
static thread_local int current;
static thread_local uint32_t parity;
static float post[2][TEAM], *memory;
static pthread_barrier_t meeting;

int lane_of() { return current; }
float* team_memory(int number) { return memory + number; }
void meet() { pthread_barrier_wait(&meeting); }
float across(float x, int apart) {
    float* here = post[parity ^= 1];
    here[current] = x;
    meet();
    return here[current ^ apart];
}

struct Array {
    uint64_t address, size;  // address: where it was in the process that asks
    char* bytes;
};

// What has another process's addresses in it, with those of here.
template <class T> T read(std::istream& file, const std::vector<Array>& arrays) {
    union {
        T it;
        uint64_t words[sizeof(T) / 8];
    };
    file.read((char*)&it, sizeof it);
    for (uint64_t& word : words)
        for (const Array& array : arrays)
            if (word == array.address) word = (uint64_t)array.bytes;
    return it;
}

// FILE: the arrays, the program, the seeds and the number of steps. OUT gets the arrays as they are afterwards.
int main(int, char** words) {
    std::ifstream file(words[1], std::ios::binary);
    const auto number = [&] { uint64_t n; file.read((char*)&n, sizeof n); return n; };
    std::vector<Array> arrays(number());
    for (Array& array : arrays) {
        array = {number(), number(), nullptr};
        array.bytes = (char*)std::malloc(array.size);
        file.read(array.bytes, array.size);
    }
    const Program program = read<Program>(file, arrays);
    const Seeds seeds = read<Seeds>(file, arrays);
    const int steps = (int)number();
    pthread_barrier_init(&meeting, nullptr, TEAM);
    for (int seed = 0; seed < seeds.count; seed++) {
        std::vector<float> own(program.team_words, __builtin_nanf(""));
        memory = own.data();
        std::vector<std::thread> team;
        for (int lane = 0; lane < TEAM; lane++)
            team.emplace_back([&, lane] {
                const Flush flush;
                current = lane;
                train_seed(program, seeds, seed, 0, seeds.yard + (int64_t)seed * program.yard_words, steps, true);
            });
        for (std::thread& thread : team) thread.join();
    }
    std::ofstream out(words[2], std::ios::binary);
    for (const Array& array : arrays) out.write(array.bytes, array.size);
    return file ? 0 : 1;
}
