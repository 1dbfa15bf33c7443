// A seed's problems through the model, a stage of answers after the other, and back. A family has before it: Wide, Sums, Far,
// Answers, Room (inputs, attention, dstream, dqueries), `solve` for a stage, and `finish` for a gradient.
#pragma once

// Blocks of problems through the model, and with TRAIN back; `source` has a block's tokens. Returns the losses.
template <bool TRAIN, class Source>
ROUTINE V run(const Wide& w, const Source& source, int problems, Measures* m, Room& room, Sums& g, Wide& gradient,
              const Goal* goal, const Seen* seen) {
    LOCAL(Answers, k);
    V loss = one(0);
    room.inputs.begin(w);
    for (int b = 0; b * LANES < problems; b++) {
        const Token* block = source(b);
        const I counted = first_lanes(problems - b * LANES);
        const Aim aim = aim_of(goal, b, counted, problems, ANSWERS, VOCABULARY);
        V block_loss = one(0);
        I exact = counted;
        room.attention.begin<TRAIN>(room.inputs, block);
        EACH_STAGE(first) {
            block_loss += solve<TRAIN>(w, room, k, block, first, aim, g);
            EACH(s, TRAIN ? 0 : STAGE) {
                see(seen, b * ANSWERS + first + s, VOCABULARY, k.logits[s]);
                if (first + s >= COUNTED) continue;
                const I right = is_right<VOCABULARY>(k.logits[s], of(block, PROMPT + first + s)) & counted;
                exact = exact & right;
                m->right += count(right);
            }
        }
        block_loss = select(counted, block_loss, one(0));
        loss += block_loss;
        if (TRAIN) {
            room.inputs.add(block, room.dstream, room.dqueries, room.attention.dreads);
        } else {
            m->exact += count(exact), m->loss += total(block_loss) / ANSWERS;
            see_block(seen, b, exact);
        }
    }
    if (TRAIN) room.inputs.finish(w, g, gradient);
    return loss;
}

// The mean loss of problems, and its gradient.
template <class Source>
INLINE float train(const Wide& w, const Source& source, int problems, Wide& gradient, Room& room, Far& sums,
                   const Goal* goal) {
    clear<Stored>(sums);
    const V loss = run<true>(w, source, problems, nullptr, room, sums, gradient, goal, nullptr);
    finish(sums, gradient);
    return total(loss) / ((float)ANSWERS * problems);
}

template <class Source>
INLINE void evaluate(const Wide& w, const Source& source, int problems, Measures* sums, Room& room, const Seen* seen) {
    *sums = {0, 0, 0};
    run<false>(w, source, problems, sums, room, *(Sums*)nullptr, *(Wide*)nullptr, nullptr, seen);
}
