// What depends on a token and its position alone: there are few such inputs, so it is worked out once for each, tokens
// in lanes, and looked up by problems. Their gradient comes back as a sum for each input.
#pragma once

constexpr int entries_of(int channels) { return channels <= 4 ? 4 : channels <= 8 ? 8 : (channels + 15) / 16 * 16; }

// Sums over problems for each token at a position.
template <int C> struct Sums {
    float entries[LANES][entries_of(C)];

    // Lane after lane, x[channel] is added where its token says.
    void add(const int32_t* token, const V* x) {
        float from[C][LANES];
        for (int c = 0; c < C; c++) store<LANES>(from[c], x[c]);
        for (int l = 0; l < LANES; l++) {
            float* to = entries[token[l]];
            for (int c = 0; c < C; c++) to[c] += from[c][l];
        }
    }

    V by_token(int channel) const {
        float made[LANES];
        for (int v = 0; v < LANES; v++) made[v] = entries[v][channel];
        return load<LANES>(made);
    }
};

INLINE V at_token(const V& table, I token) { return look_up<LANES>((const float*)&table, token); }

// h = x, less its mean with LAYER, by its length; 1 in a last place, for a matrix's last column. Returns the scale.
INLINE V norm(const V* x, V* h) {
    V s = one(0), mean = one(0);
    if (LAYER) {
        for (int i = 0; i < WIDTH; i++) mean += x[i];
        mean *= one(1.0f / WIDTH);
    }
    for (int i = 0; i < WIDTH; i++) {
        h[i] = LAYER ? x[i] - mean : x[i];
        s = fma(h[i], h[i], s);
    }
    V scale = one(1) / root(fma(s, one(1.0f / WIDTH), one(EPS)));
    for (int i = 0; i < WIDTH; i++) h[i] *= scale;
    if (LAYER) h[COLUMNS - 1] = one(1);
    return scale;
}

// The gradient of x from that of h.
INLINE void norm_back(const V* h, V scale, const V* dh, V* dx) {
    V along = one(0), mean = one(0);
    for (int i = 0; i < WIDTH; i++) {
        along = fma(dh[i], h[i], along);
        if (LAYER) mean += dh[i];
    }
    along *= one(1.0f / WIDTH), mean *= one(1.0f / WIDTH);
    for (int i = 0; i < WIDTH; i++) {
        V d = fma(h[i], -along, dh[i]);
        dx[i] = scale * (LAYER ? d - mean : d);
    }
}

struct Inputs {
    V stream[ANSWERS][WIDTH], queries[ANSWERS][RANK], reads[POSITIONS][SEEN];
    V normed[POSITIONS][COLUMNS], scale[POSITIONS];
    bool bounded[ANSWERS];  // whether no score of an answer can be large
    Sums<WIDTH> dstream[ANSWERS];
    Sums<RANK> dqueries[ANSWERS];
    Sums<SEEN> dreads[POSITIONS];

    void begin(const Wide& w) {
        V table[WIDTH], x[WIDTH];
        for (int i = 0; i < WIDTH; i++) {
            float row[LANES] = {};
            for (int v = 0; v < VOCABULARY; v++) row[v] = w.tokens[v][i];
            table[i] = load<LANES>(row);
        }
        for (int t = 0; t < POSITIONS; t++) {
            V* to = t < FIRST ? x : stream[t - FIRST];
            for (int i = 0; i < WIDTH; i++) to[i] = table[i] + one(w.positions[t][i]);
            scale[t] = norm(to, normed[t]);
            times(w.reads, normed[t], reads[t]);
            if (t >= FIRST) times(w.queries, normed[t], queries[t - FIRST]);
        }
        bound();
        std::memset(dstream, 0, sizeof dstream);
        std::memset(dqueries, 0, sizeof dqueries);
        std::memset(dreads, 0, sizeof dreads);
    }

    void bound() {
        V high[RANK];
        for (int r = 0; r < RANK; r++) {
            high[r] = one(0);
            for (int t = 0; t < POSITIONS; t++) high[r] = largest(high[r], magnitude(reads[t][r]));
        }
        for (int a = 0; a < ANSWERS; a++) {
            float most = 0;
            for (int r = 0; r < RANK; r++) most += highest(high[r]) * highest(magnitude(queries[a][r]));
            bounded[a] = most <= BOUND;
        }
    }

    static float highest(V x) {
        float lanes[LANES], most = 0;
        store<LANES>(lanes, x);
        for (int v = 0; v < VOCABULARY; v++) most = lanes[v] > most ? lanes[v] : most;
        return most;
    }

    void finish(const Wide& w, Gradient& __restrict g) {
        V table[WIDTH];
        for (int i = 0; i < WIDTH; i++) table[i] = one(0);
        for (int t = 0; t < POSITIONS; t++) {
            V d[SEEN], dq[RANK], dh[COLUMNS], dx[WIDTH];
            for (int c = 0; c < SEEN; c++) d[c] = dreads[t].by_token(c);
            times_back(w.reads, d, dh);
            for (int c = 0; c < SEEN; c++)
                for (int j = 0; j < COLUMNS; j++) g.reads[c][j] = fma(d[c], normed[t][j], g.reads[c][j]);
            if (t >= FIRST) {
                V more[COLUMNS];
                for (int r = 0; r < RANK; r++) dq[r] = dqueries[t - FIRST].by_token(r);
                times_back(w.queries, dq, more);
                for (int j = 0; j < COLUMNS; j++) dh[j] += more[j];
                for (int r = 0; r < RANK; r++)
                    for (int j = 0; j < COLUMNS; j++) g.queries[r][j] = fma(dq[r], normed[t][j], g.queries[r][j]);
            }
            norm_back(normed[t], scale[t], dh, dx);
            for (int i = 0; i < WIDTH; i++) {
                if (t >= FIRST) dx[i] += dstream[t - FIRST].by_token(i);
                g.positions[t][i] = dx[i];
                table[i] += dx[i];
            }
        }
        for (int i = 0; i < WIDTH; i++)
            for (int v = 0; v < VOCABULARY; v++) std::memcpy(&g.tokens[v][i], (const float*)&table[i] + v, 4);
    }
};
