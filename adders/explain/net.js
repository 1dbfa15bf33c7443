// ---- nets: the spec's own tape makes the wide tensors of θ; what follows is `apply` of model/families, in float64

const PROMPT = 22, COLUMNS = 10;
const PLAYED = [
  (a, b) => a + b, (a, b) => a - b, (a, b) => a * b, (a, b) => a / b, a => -a, Math.sqrt, Math.exp, Math.log, Math.sin,
  Math.cos, Math.abs, (a, b) => Math.max(a, b), (a, b) => Math.min(a, b), Math.floor, Math.pow, (a, b) => Number(a > b),
  (a, b) => Number(a >= b), (a, b) => Number(a === b), (a, b, c) => a ? b : c,
]; // in the order of trainer/engine/tape_graph.py

function play(tape, inputs) {
  const registers = [...inputs, ...tape.constants], first = registers.length, [a, b, c] = tape.reads;
  for (const [operation, begin, end] of tape.blocks)
    for (let n = begin; n < end; n++)
      registers[first + n] = PLAYED[operation](registers[a[n]], registers[b[n]], registers[c[n]]);
  return tape.outputs.map(r => registers[r]);
}

/** Nested lists of this shape, of the next entries of an iterator. */
const nested = (entries, [size, ...inner]) =>
  Array.from({ length: size }, () => inner.length ? nested(entries, inner) : entries.next().value);

const dot = (a, b) => a.reduce((sum, n, i) => sum + n * b[i], 0);
const times = (matrix, vector) => matrix.map(row => dot(row, vector));
const added = (a, b) => a.map((n, i) => n + b[i]);

/** By a series whose terms are all of one sign. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= 2 * x * x / (2 * n + 1);
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}
const gelu = x => x * (1 + erf(x / Math.SQRT2)) / 2;

function unit(x, eps, centre = false) {
  const mean = centre ? x.reduce((a, b) => a + b) / x.length : 0, y = x.map(n => n - mean);
  const scale = 1 / Math.sqrt(dot(y, y) / y.length + eps);
  return y.map(n => n * scale);
}

/** A family's part: base(k, token), value(channel, t, token), weight or score(head, k, token, t, seen), rest(base, channels). */
const FAMILIES = {
  split_subspace({ heads, circular, summed }, w) {
    const column = (k, token) => [...w.table.map(axis => axis[token]), ...w.positions.map(axis => axis[k])];
    const scale = (t, token) => circular ? 1 : w.scale[t][token];
    return {
      heads, summed, channels: w.values.length / (summed ? heads : 1), base: column,
      value: (c, t, token) => w.values[c][token] * scale(t, token),
      weight: circular ? (h, k, t) => w.attention[h][k][t] : null,
      score: (h, k, token, t, seen) => w.attention[h][k][t] * scale(PROMPT - 1 + k, token) * scale(t, seen),
      rest(base, channels) {
        let x = added(base, times(w.write, channels));
        const inputs = times(w.fc1, unit(x, 1e-5)).map((h, i) => h + (w.fc1_bias?.[i] ?? 0));
        x = added(x, times(w.fc2, inputs.map(gelu))).map((n, i) => n + (w.fc2_bias?.[i] ?? 0));
        const out = times(w.head, unit(x, 1e-5));
        return w.table[0].map((_, token) => dot(out, w.table.map(axis => axis[token])));
      },
    };
  },
  low_rank({ centre }, w) {
    const norm = x => centre ? [...unit(x, 1e-5, true), 1] : unit(x, 1e-8);
    const base = (t, token) => added(w.tokens[token], w.positions[t]);
    const read = matrix => w.positions.map((_, t) => w.tokens.map((_, token) => times(matrix, norm(base(t, token)))));
    const queries = read(w.queries), keys = read(w.keys), values = w.values ? read(w.values) : keys;
    const inner = name => w[name] ? x => times(w[name], x) : x => times(w[name + "_B"], times(w[name + "_A"], x));
    return {
      heads: 1, summed: true, channels: values[0][0].length, base: (k, token) => base(PROMPT - 1 + k, token),
      value: (c, t, token) => values[t][token][c],
      score: (h, k, token, t, seen) => dot(queries[PROMPT - 1 + k][token], keys[t][seen]),
      rest(start, channels) {
        let x = added(start, times(w.write, channels));
        x = added(x, inner("fc2")(inner("fc1")(norm(x)).map(gelu)));
        return times(w.head, norm(x));
      },
    };
  },
  rope({ heads }, w) {
    const first = 23, width = w.tokens[0].length, eps = 1e-6;
    const base = (t, token) => w.tokens[token].map((n, i) => i === 2 && w.ramp ? n + w.ramp[t] : n);
    const read = value => w.turns.map((_, t) => w.tokens.map((_, token) => value(unit(base(t, token), eps), t)));
    const turned = ([a, b, c, d], [cos0, cos1, sin0, sin1]) =>
      [a * cos0 - b * sin0, a * sin0 + b * cos0, c * cos1 - d * sin1, c * sin1 + d * cos1];
    const features = (rows, weights) => read((x, t) => turned(unit(times(rows, x), eps).map((n, i) => n * weights[i]), w.turns[t]));
    const queries = Array.from({ length: heads }, (_, h) => features(w.queries.slice(4 * h, 4 * h + 4), w.query_norm));
    const keys = features(w.keys, w.key_norm), values = read(x => times(w.values, x));
    return {
      heads, summed: true, channels: width, base: (k, token) => base(first + k, token),
      value: (c, t, token) => values[t][token][c],
      score: (h, k, token, t, seen) => dot(queries[h][first + k][token], keys[t][seen]),
      rest(start, channels) {
        let x = added(start, channels);
        const inner = unit(x, eps), units = times(w.up, inner);
        x = added(x, times(w.down, times(w.gate, inner).map((gate, i) => gate / (1 + Math.exp(-gate)) * units[i])));
        return times(w.head, unit(x, eps));
      },
    };
  },
};

class Net {
  constructor(program) {
    Object.assign(this, program);
    this.start = [...this.numbers];
    this.set();
  }

  /** Make everything that depends on θ anew. */
  set() {
    const theta = this.ties.map(k => k ? Math.sign(k) * this.numbers[Math.abs(k) - 1] : 0);
    const entries = play(this.tape, theta).values();
    this.net = FAMILIES[this.family](this.form, Object.fromEntries(this.wide.map(([n, shape]) => [n, nested(entries, shape)])));
    this.bandsOf = new Map();
  }

  /** The tokens of a + b and the first digits of an answer, units first. */
  tokens(a, b, answer) {
    const x = digits(a), y = digits(b);
    return [...this.prompt.map(t => t >= 200 ? y[t - 200] : t >= 100 ? x[t - 100] : t), ...answer];
  }

  /** What head h's channels are made of when digit k is asked for: each position's weight, and its channels' values. */
  look(tokens, k) {
    const { net } = this, query = tokens.at(-1), count = net.channels;
    const heads = Array.from({ length: net.heads }, (_, h) => {
      const scores = net.weight ? [] : tokens.map((seen, t) => net.score(h, k, query, t, seen));
      const weights = net.weight ? tokens.map((_, t) => net.weight(h, k, t)) : softmax(scores);
      const first = net.summed ? h * count : h * count / net.heads;
      const channels = Array.from({ length: net.summed ? count : count / net.heads }, (_, c) =>
        weights.reduce((sum, weight, t) => sum + weight * net.value(first + c, t, tokens[t]), 0));
      return { weights, channels };
    });
    const channels = net.summed ? heads.map(h => h.channels).reduce(added) : heads.flatMap(h => h.channels);
    return { heads, channels, base: net.base(k, query) };
  }

  logits(tokens, k) {
    const { base, channels } = this.look(tokens, k);
    return this.net.rest(base, channels);
  }

  /** Decode a + b greedily: for each step the tokens before it, what was seen, and the logits. */
  decode(a, b) {
    const tokens = this.tokens(a, b, []), steps = [];
    for (let k = 0; k < this.steps; k++) {
      const before = [...tokens], seen = this.look(before, k), logits = this.net.rest(seen.base, seen.channels);
      const token = logits.indexOf(Math.max(...logits));
      steps.push({ k, tokens: before, ...seen, logits, token });
      tokens.push(token);
    }
    const end = steps.findIndex(s => s.token > 9), read = steps.slice(0, end < 0 ? steps.length : end);
    return { steps, answer: Number(read.map(s => s.token).reverse().join("")) };
  }

  /** The line through this step's channels along which the column's sum moves them: its direction, a place on it, and the
   * places of all sums with all else the same. */
  axis(step) {
    const { k, tokens } = step;
    const at = sum => {
      const [x, y] = [Math.min(sum, 9), Math.max(sum - 9, 0)], replaced = [...tokens];
      for (const [operand, digit] of [[100, x], [200, y]])
        if (k < COLUMNS) replaced[this.prompt.indexOf(operand + k)] = digit;
      return this.look(replaced, k).channels;
    };
    const low = at(0), span = at(18).map((n, i) => n - low[i]), length = Math.sqrt(dot(span, span));
    const direction = low.length === 1 || !length ? low.map((_, i) => Number(i === 0)) : span.map(n => n / length);
    const place = channels => dot(direction, channels);
    return { direction, place, sums: k < COLUMNS ? Array.from({ length: 19 }, (_, sum) => place(at(sum))) : [place(low) - 1, place(low) + 1] };
  }

  /** Segments [from, to, token] of a line, by the token that wins there. */
  regions(step, direction, from, to, count = 400) {
    const here = dot(direction, step.channels), segments = [];
    const winner = u => {
      const logits = this.net.rest(step.base, step.channels.map((n, i) => n + (u - here) * direction[i]));
      return logits.indexOf(Math.max(...logits));
    };
    for (let i = 0; i < count; i++) {
      const [begin, end] = [from + (to - from) * i / count, from + (to - from) * (i + 1) / count];
      const token = winner((begin + end) / 2), last = segments.at(-1);
      if (last?.[2] === token) last[1] = end;
      else segments.push([begin, end, token]);
    }
    return segments;
  }

  /** Where all inputs with this token before digit k lie on the one channel: [low, high] by x + y + carry.
   * The largest quotient N / D is found by Dinkelbach's method; each of its steps is a longest path through columns.
   * Null for a net of more channels. */
  bands(k, token) {
    if (this.net.heads > 1 || this.net.channels > 1 || k > COLUMNS) return null;
    const key = `${k} ${token}`;
    if (!this.bandsOf.has(key)) {
      const low = this.extremes(k, token, -1), high = this.extremes(k, token, 1);
      this.bandsOf.set(key, high.map((value, sum) => value === null ? null : [-low[sum], value]));
    }
    return this.bandsOf.get(key);
  }

  extremes(k, token, sign) {
    const { net, prompt } = this;
    const top = net.weight ? 0 : Math.max(...prompt.map((_, t) => t).concat(k ? prompt.length - 1 + k : []).flatMap(t =>
      Array.from({ length: 10 }, (_, seen) => net.score(0, k, token, t, seen))));
    const term = (t, seen) => {
      const weight = net.weight ? net.weight(0, k, t) : Math.exp(net.score(0, k, token, t, seen) - top);
      return [sign * weight * net.value(0, t, seen), weight];
    };
    const row = t => Array.from({ length: 10 }, (_, seen) => term(t, seen));
    const X = [], Y = [], Z = [];
    for (let j = 0; j < COLUMNS; j++) {
      X.push(row(prompt.indexOf(100 + j))), Y.push(row(prompt.indexOf(200 + j)));
      if (j < k) Z.push(row(prompt.length + j));
    }
    const sum = (...pairs) => pairs.reduce(([n, d], [m, e]) => [n + m, d + e]);
    const delimiters = prompt.flatMap((seen, t) => seen < 100 ? [term(t, seen)] : []).reduce((a, b) => sum(a, b));
    const reach = level => { // the best [N, D] by x + y + carry, where N - level · D is largest
      const value = ([n, d]) => n - level * d, best = (a, b) => !a || b && value(b) > value(a) ? b : a;
      let carries = [delimiters, null];
      for (let j = COLUMNS - 1; j > k; j--)
        carries[0] = sum(carries[0], X[j].reduce(best), Y[j].reduce(best));
      for (let j = 0; j < Math.min(k, COLUMNS); j++) {
        const next = [null, null];
        for (const carry of [0, 1]) if (carries[carry])
          for (let x = 0; x < 10; x++) for (let y = 0; y < 10; y++) {
            const s = x + y + carry, z = s % 10;
            if (j === k - 1 && z !== token) continue;
            next[+(s > 9)] = best(next[+(s > 9)], sum(carries[carry], X[j][x], Y[j][y], Z[j][z]));
          }
        carries = next;
      }
      if (k === COLUMNS) return carries;
      const bySum = Array(20).fill(null);
      for (const carry of [0, 1]) if (carries[carry])
        for (let x = 0; x < 10; x++) for (let y = 0; y < 10; y++)
          bySum[x + y + carry] = best(bySum[x + y + carry], sum(carries[carry], X[k][x], Y[k][y]));
      return bySum;
    };
    const quotient = pair => pair && (net.weight ? pair[0] : pair[0] / pair[1]);
    const levels = reach(0).map(quotient);
    if (net.weight) return levels;
    return levels.map((level, s) => {
      for (let n = 0; level !== null && n < 8; n++) level = Math.max(level, quotient(reach(level)[s]));
      return level;
    });
  }
}

/** The ten digits of a number, units first. */
const digits = n => Array.from({ length: COLUMNS }, (_, j) => Math.floor(n / 10 ** j) % 10);
