// Where the fields of the structs are that Python fills in (trainer/engine/structures.py): an offset for `Struct.field`,
// a size for `Struct`, -1 for what is not there. A struct and this list are changed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define SIZE(S) {#S, sizeof(S)}
#define AT(S, field) {#S "." #field, offsetof(S, field)}

static const struct {
    const char* name;
    size_t bytes;
} LAYOUT[] = {
    SIZE(Measures), AT(Measures, exact), AT(Measures, right), AT(Measures, loss),
    SIZE(Seen), AT(Seen, logits), AT(Seen, right),
    SIZE(Tape), AT(Tape, inputs), AT(Tape, constants), AT(Tape, operations), AT(Tape, blocks), AT(Tape, outputs),
    AT(Tape, constant), AT(Tape, block), AT(Tape, a), AT(Tape, b), AT(Tape, c), AT(Tape, output),
    SIZE(Sequence), AT(Sequence, length), AT(Sequence, source),
    SIZE(Lesson), AT(Lesson, data_seed), AT(Lesson, step), AT(Lesson, carry_mix), AT(Lesson, mixed_lengths),
    AT(Lesson, single), AT(Lesson, chain), AT(Lesson, place), AT(Lesson, digits), AT(Lesson, by_kind),
    AT(Lesson, targeted), AT(Lesson, errors), AT(Lesson, error_a), AT(Lesson, error_b),
    SIZE(Learning), AT(Learning, teacher), AT(Learning, wide), AT(Learning, alpha), AT(Learning, temperature),
    AT(Learning, logits),
    SIZE(Errors), AT(Errors, operands), AT(Errors, count), AT(Errors, kept),
    SIZE(Program), AT(Program, lesson), AT(Program, expand), AT(Program, probe), AT(Program, take), AT(Program, sequence),
    AT(Program, batch), AT(Program, row), AT(Program, theta), AT(Program, step), AT(Program, gradient),
    AT(Program, parameters), AT(Program, updated), AT(Program, train), AT(Program, evaluate), AT(Program, learning),
    AT(Program, targeted),
};

inline int64_t layout_of(const char* name) {
    for (const auto& place : LAYOUT)
        if (!std::strcmp(place.name, name)) return (int64_t)place.bytes;
    return -1;
}
