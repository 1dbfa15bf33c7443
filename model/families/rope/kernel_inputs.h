// What depends on a token, and its position, alone: worked out once for each, tokens in lanes, and looked up by problems.
// Their gradient comes back as a sum for each token at a position.
#pragma once

INLINE V at_token(const Stored& table, I token) { return look_up_lane(table, token); }

// h = x by its length. Returns the scale.
template <int N> INLINE V norm(const V* x, V* h) {
    V s = x[0] * x[0];
    EACH_FROM(1, i, N) s = fma(x[i], x[i], s);
    const V scale = one(1) / root(fma(s, one(1.0f / N), one(EPS)));
    EACH(i, N) h[i] = x[i] * scale;
    return scale;
}

// The gradient of x from that of h, which may stand in its place.
template <int N> INLINE void norm_back(const V* h, V scale, const V* dh, V* dx) {
    V along = dh[0] * h[0];
    EACH_FROM(1, i, N) along = fma(dh[i], h[i], along);
    along *= one(-1.0f / N);
    EACH(i, N) dx[i] = scale * fma(h[i], along, dh[i]);
}

// x turned by a position's angles, or with `back` the other way.
INLINE void turned(const float (&turns)[HEAD], const V* x, V* y, bool back = false) {
    EACH(p, HEAD / 2) {
        const V cos = one(turns[p]), sin = one(back ? -turns[HEAD / 2 + p] : turns[HEAD / 2 + p]);
        const V a = x[2 * p], b = x[2 * p + 1];
        y[2 * p] = fma(a, cos, -(b * sin)), y[2 * p + 1] = fma(a, sin, b * cos);
    }
}

struct Inputs {
    Stored stream[ROWS][WIDTH], normed[ROWS][WIDTH], scale[ROWS];
    Stored query[ROWS][QUERIES], query_scale[ROWS][HEADS], key[ROWS][HEAD], key_scale[ROWS];  // normed, without weights
    Stored queries[ANSWERS][QUERIES], keys[POSITIONS][HEAD], values[ROWS][VALUES];  // as attention reads them
    int bounded;  // no score can be large
    Rows<WIDTH> dstream[ANSWERS];
    Rows<QUERIES> dqueries[ANSWERS];
    Rows<SEEN> dreads[POSITIONS];

    INLINE_MEMBER V read(const Token* block, int t, int c) const {
        const I token = of(block, t);
        return c < HEAD ? at_token(keys[t][c], token) : at_token(values[ROWS == 1 ? 0 : t][c - HEAD], token);
    }

    void begin(const Wide& w) {
        V table[WIDTH], asked = one(0), answered = one(0);
        EACH(i, WIDTH) table[i] = load_column<VOCABULARY>(&w.tokens[0][i], WIDTH);
        for (int r = 0; r < ROWS; r++) {
            V x[WIDTH], h[WIDTH], q[QUERIES], k[HEAD], v[VALUES], weighted[QUERIES];
            EACH(i, WIDTH) x[i] = table[i];
#if POSITIONAL
            x[2] += one(w.ramp[r]);
#endif
            scale[r] = norm<WIDTH>(x, h);
            times(w.queries, h, q), times(w.keys, h, k), times(w.values, h, v);
            EACH(n, HEADS) query_scale[r][n] = norm<HEAD>(q + n * HEAD, q + n * HEAD);
            key_scale[r] = norm<HEAD>(k, k);
            EACH(i, WIDTH) stream[r][i] = x[i], normed[r][i] = h[i];
            EACH(c, VALUES) values[r][c] = v[c];
            EACH(c, QUERIES) query[r][c] = q[c], weighted[c] = q[c] * one(w.query_norm[c % HEAD]);
            EACH(c, HEAD) key[r][c] = k[c], k[c] *= one(w.key_norm[c]);
            EACH(n, HEADS) asked = largest(asked, length(weighted + n * HEAD));
            answered = largest(answered, length(k));
            for (int t = r; t < (ROWS == 1 ? POSITIONS : r + 1); t++) {
                V y[QUERIES];
                turned(w.turns[t], k, y);
                EACH(c, HEAD) keys[t][c] = y[c];
                if (t < FIRST) continue;
                EACH(n, HEADS) turned(w.turns[t], weighted + n * HEAD, y + n * HEAD);
                EACH(c, QUERIES) queries[t - FIRST][c] = y[c];
            }
        }
        const int small = highest_lane<VOCABULARY>(asked) * highest_lane<VOCABULARY>(answered) <= BOUND;
        EACH_SHARED(once, 1) bounded = small;
        clear_rows(dstream), clear_rows(dqueries), clear_rows(dreads);
        meet();
    }

    static INLINE_MEMBER V length(const V* x) {
        V s = x[0] * x[0];
        EACH_FROM(1, i, HEAD) s = fma(x[i], x[i], s);
        return root(s);
    }

    // The gradient of a block's inputs.
    INLINE_MEMBER void add(const Token* block, const Stored (&dx)[ANSWERS][WIDTH], const Stored (&dq)[ANSWERS][QUERIES],
                           const Stored (&d)[POSITIONS][SEEN]) {
        add_rows(dstream, block, FIRST, dx), add_rows(dqueries, block, FIRST, dq), add_rows(dreads, block, 0, d);
    }

    void finish(const Wide& w, Sums& __restrict g, Wide& gradient) {
        V table[WIDTH];
        EACH(i, WIDTH) table[i] = one(0);
        for (int r = 0; r < ROWS; r++) {
            V dx[WIDTH], dq[QUERIES], dk[HEAD], dv[VALUES], h[WIDTH], dh[WIDTH], more[WIDTH];
            EACH(i, WIDTH) dx[i] = one(0), h[i] = normed[r][i];
            EACH(c, QUERIES) dq[c] = one(0);
            EACH(c, HEAD) dk[c] = one(0);
            EACH(c, VALUES) dv[c] = one(0);
            for (int t = r; t < (ROWS == 1 ? POSITIONS : r + 1); t++) {
                V d[QUERIES], y[QUERIES];
                EACH(c, HEAD) d[c] = dreads[t].by_token(c);
                turned(w.turns[t], d, y, true);
                EACH(c, HEAD) dk[c] += y[c];
                EACH(c, VALUES) dv[c] += dreads[t].by_token(HEAD + c);
                if (t < FIRST) continue;
                EACH(c, QUERIES) d[c] = dqueries[t - FIRST].by_token(c);
                EACH(n, HEADS) turned(w.turns[t], d + n * HEAD, y + n * HEAD, true);
                EACH(c, QUERIES) dq[c] += y[c];
                EACH(i, WIDTH) dx[i] += dstream[t - FIRST].by_token(i);
            }
            V unit[QUERIES];
            EACH(c, QUERIES) {
                unit[c] = query[r][c];
                g.query_norm[c % HEAD] = fma(dq[c], unit[c], get(g.query_norm[c % HEAD]));
                dq[c] *= one(w.query_norm[c % HEAD]);
            }
            EACH(n, HEADS) norm_back<HEAD>(unit + n * HEAD, query_scale[r][n], dq + n * HEAD, dq + n * HEAD);
            EACH(c, HEAD) {
                unit[c] = key[r][c];
                g.key_norm[c] = fma(dk[c], unit[c], get(g.key_norm[c]));
                dk[c] *= one(w.key_norm[c]);
            }
            norm_back<HEAD>(unit, key_scale[r], dk, dk);
            EACH(c, QUERIES) EACH(j, WIDTH) g.queries[c][j] = fma(dq[c], h[j], get(g.queries[c][j]));
            EACH(c, HEAD) EACH(j, WIDTH) g.keys[c][j] = fma(dk[c], h[j], get(g.keys[c][j]));
            EACH(c, VALUES) EACH(j, WIDTH) g.values[c][j] = fma(dv[c], h[j], get(g.values[c][j]));
            times_back(w.queries, dq, dh);
            times_back(w.keys, dk, more);
            EACH(j, WIDTH) dh[j] += more[j];
            times_back(w.values, dv, more);
            EACH(j, WIDTH) dh[j] += more[j];
            norm_back<WIDTH>(h, scale[r], dh, dh);
            EACH(i, WIDTH) table[i] += dx[i] + dh[i];
        }
        EACH(i, WIDTH) store_column<VOCABULARY>(&gradient.tokens[0][i], WIDTH, table[i]);
    }
};
