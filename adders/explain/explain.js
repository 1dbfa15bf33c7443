// ---- the page

const NETS = MODEL.nets.map(net => ({ ...net, run: new Net(net.program) }));
const LARGEST = 9_999_999_999;
const state = { k: 0, pair: MODEL.example };
const colour = token => token > 9 ? "var(--soft)" : `oklch(62% .14 ${token * 36 + 20})`;
const named = token => token > 9 ? ["+", "=", "end", "pad"][token - 10] : String(token);
const escaped = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

/** Digit k of the sum, the column's digits and its carry: what step k is asked for. */
function column(k) {
  const [a, b] = state.pair, unit = 10 ** k;
  const carry = Number(a % unit + b % unit >= unit), x = digits(a)[k] ?? 0, y = digits(b)[k] ?? 0;
  return { x, y, carry, sum: x + y + carry, right: Math.floor((a + b) / unit) % 10 };
}

/** True if a token is what step k should give; behind the last digit, anything that leaves the number as it is. */
const good = (k, token) => k > COLUMNS ? token === 0 || token > 9 : token === column(k).right;

function margin(step) {
  const wins = n => good(step.k, n), best = keep => Math.max(...step.logits.filter((_, n) => keep(n)));
  return best(wins) - best(n => !wins(n));
}

// ---- one digit of one net

function looking(net, step) {
  const { k, tokens, heads } = step, rows = ["X", "Y", "Z"], asked = net.prompt.length;
  const place = { X: j => net.prompt.indexOf(100 + j), Y: j => net.prompt.indexOf(200 + j), Z: j => asked + j };
  const rest = tokens.map((_, t) => t).filter(t => t < asked && net.prompt[t] < 100);
  const columns = [...Array(COLUMNS + 1).keys()].reverse();
  return heads.map(({ weights }, h) => {
    const total = weights.reduce((a, b) => a + b);
    const cell = t => {
      if (t < 0 || t >= tokens.length) return `<td class="nil"></td>`;
      const share = weights[t] / total, mix = (4 + 80 * share).toFixed(0);
      const what = `${share < .0005 ? "~0" : percent(share)} of the weight`;
      return `<td data-t="${t}" data-share="${share}" title="${what}" style="--tint: var(--hot); --mix: ${mix}%"
        >${named(tokens[t])}<small>${share < .005 ? "" : Math.round(100 * share) + "%"}</small></td>`;
    };
    const body = rows.map(row => `<tr><th scope="row">${row}</th>${columns.map(j =>
      cell(j === COLUMNS && row !== "Z" ? -1 : place[row](j))).join("")}</tr>`);
    const sign = t => t === asked - 1 ? "=" : t ? "+" : "start";
    const written = rest.some(t => tokens[t] === 0) ? "the signs, all of them token 0 to this model" : "the signs";
    const others = rest.map(t => `<th>${sign(t)}</th>${cell(t)}`).join("");
    return `<table data-head="${h}"><caption>${heads.length > 1 ? `head ${h + 1} <span>` : "<span>"}columns, the highest first</span></caption>
      <thead><tr><th></th>${columns.map(j => `<th scope="col">${j}</th>`).join("")}</tr></thead>
      <tbody>${body.join("")}</tbody></table><table><caption><span>${written}</span></caption><tbody><tr>${others}</tr></tbody></table>`;
  }).join("");
}

/** The axis: regions in which each token wins, bands of all inputs by the column's sum, and where this input lies. */
function axis(net, step) {
  const { direction, place, sums } = net.axis(step), here = place(step.channels), query = step.tokens.at(-1);
  const bands = net.bands(step.k, query) ?? [], ends = bands.filter(Boolean).flat().concat(here);
  if (!bands.length) ends.push(...sums);
  const spread = Math.max(...ends) - Math.min(...ends) || 1;
  const from = Math.min(...ends) - .06 * spread, to = Math.max(...ends) + .06 * spread;
  const W = Math.max(at("budget").querySelector(".tree").clientWidth, 300); // as wide as the sections above
  const left = bands.length ? 42 : 4, x = u => left + (W - left - 4) * (u - from) / (to - from), zones = net.regions(step, direction, from, to);
  const zone = ([u, v, token]) => `<rect class="zone" x="${x(u).toFixed(1)}" y="24" width="${(x(v) - x(u)).toFixed(1)}" height="30"
      style="fill: ${colour(token)}" data-token="${token}"><title>${named(token)} wins from ${shown(u)} to ${shown(v)}</title></rect>
    ${x(v) - x(u) > 12 ? `<text x="${(x(u) + x(v)) / 2}" y="44" style="fill: #fff; font-weight: 700">${named(token)}</text>` : ""}`;
  const band = (ends, sum) => ends && `<rect class="band" x="${(x(ends[0]) - 1).toFixed(1)}" y="${sum < 10 ? 60 : 76}"
      width="${(x(ends[1]) - x(ends[0]) + 2).toFixed(1)}" height="10" style="fill: ${colour(sum % 10)}"
      data-sum="${sum}"><title>x + y + carry = ${sum}: from ${shown(ends[0])} to ${shown(ends[1])}</title></rect>`;
  const words = bands.length ? ["0–9", "10–19"].map((text, i) => `<text class="label" x="${left - 6}" y="${69 + 16 * i}">${text}</text>`) : [];
  const points = bands.length ? [] : sums.map((u, sum) => `<circle cx="${x(u).toFixed(1)}" cy="62" r="4" style="fill: ${colour((sum + column(step.k).carry) % 10)}"
    ><title>x + y = ${sum}, all else the same</title></circle>`);
  return `<svg class="axis" viewBox="0 0 ${W} ${bands.length ? 96 : 72}" role="img" aria-label="the number ${shown(here)} lies where ${named(step.token)} wins">
    ${zones.map(zone).join("")}${bands.map(band).join("")}${words.join("")}${points.join("")}
    <path class="here" d="M${x(here)} 18V${bands.length ? 92 : 70}"/><text x="${Math.min(Math.max(x(here), 40), W - 40)}" y="13">${shown(here)}</text></svg>`;
}

function bars(step) {
  const low = Math.min(...step.logits), high = Math.max(...step.logits);
  return `<div class="bars">${step.logits.map((n, token) => {
    const right = token === step.token ? ' class="right"' : "";
    return `<span${right}>${named(token)}</span><div style="--tint: ${colour(token)}; width: ${(100 * (n - low) / (high - low || 1)).toFixed(1)}%"></div>
      <span${right}>${shown(token === step.token ? n : n - high)}</span>`;
  }).join("")}</div>`;
}

const verdicts = {
  PROVED: p => `proved right on all 10<sup>20</sup> pairs; smallest margin ${shown(p.margin)}`,
  COUNTEREXAMPLE: p => `<span class="bad">wrong on ${p.pair[0]} + ${p.pair[1]}</span>`,
  UNDECIDED: p => `not decided for all pairs${p.margin === null ? "" : `; smallest margin seen ${shown(p.margin)}`}`,
};

const moved = net => net.run.numbers.some((n, i) => n !== net.run.start[i]);

function card(net) {
  const step = net.trace.steps[Math.min(state.k, net.trace.steps.length - 1)], { k } = step;
  const { x, y, carry, sum, right } = column(k), before = step.tokens.at(-1), gap = margin(step);
  const asked = k === 0 ? "the equals sign" : `the digit before it, ${named(before)}`;
  const work = k < COLUMNS ? `${x} + ${y}${carry ? " + 1 carried" : ""} = ${sum}, so the digit is ${right}`
    : k === COLUMNS ? `the last carry is ${carry}, so the digit is ${right}` : "the answer ends";
  const count = step.channels.length, run = net.run;
  const seen = count > 1 ? `${count} numbers: ${step.channels.map(shown).join(", ")}. The line goes through them in the direction in which the column's sum moves them; points: where other sums would lie`
    : `One number, <b>${shown(step.channels[0])}</b>. Regions: which token wins there. Bands below: where all inputs lie, by the column's sum with its carry`;
  const section = document.createElement("section");
  section.innerHTML = `<div class="kicker">${escaped(net.name)} · ${net.params.toLocaleString("en")} numbers${
    !net.proof ? "" : moved(net) ? " · numbers changed: the proof is of the original" : " · " + verdicts[net.proof.verdict](net.proof)}</div>
    <h2>${k > COLUMNS ? "The end" : `Digit ${k}`}: <span class="${good(k, step.token) ? "" : "bad"}">${named(step.token)}</span></h2>
    <p>Asked for at ${asked}. In this column ${work}. ${good(k, step.token) ? "" : `<span class="bad">The model says ${named(step.token)}.</span>`}</p>
    <div class="pair"><div><h3>What attention reads</h3><div class="wide look">${looking(run, step)}</div></div>
    <div><h3>Who wins</h3><p class="say">The winner's logit, and how far others are behind it. The right token leads by <b class="margin ${gap > 0 ? "" : "bad"}">${shown(gap)}</b>.</p>${bars(step)}</div></div>
    <h3>What attention writes, and where each token wins</h3><p class="say">${seen}.</p>${axis(run, step)}`;
  return section;
}

// ---- θ, sliders, budget

/** Where each tensor's entries begin in θ. */
function tensors(net) {
  let begin = 0;
  return net.run.tensors.map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1), first = begin;
    begin += size;
    return { name, shape, size, first };
  });
}

function numbers(net, index) {
  const reads = new Map();
  net.run.ties.forEach(k => reads.set(Math.abs(k), (reads.get(Math.abs(k)) ?? 0) + 1));
  const cell = (entry, label) => {
    const k = net.run.ties[entry], number = Math.abs(k) - 1, tied = k && reads.get(Math.abs(k)) > 1;
    if (!k) return `<td class="nil" data-entry="${label}">0<small>fixed</small></td>`;
    const value = net.run.start[number], reach = Math.max(Math.abs(value), .5);
    return `<td class="${tied ? "tied" : ""}" data-entry="${label}" data-number="${number}" data-sign="${Math.sign(k)}" style="--hue: ${number * 137 % 360}"
      ><span></span><input type="range" min="${value - reach}" max="${value + reach}" step="any" value="${value}" aria-label="${label}"></td>`;
  };
  const tensor = ({ name, shape, first }) => {
    const [rows, columns] = shape.length === 2 && shape[1] > 1 ? shape : [1, shape[0]]; // a column lies down
    const body = Array.from({ length: rows }, (_, r) => `<tr>${Array.from({ length: columns }, (_, c) =>
      cell(first + r * columns + c, `${name}[${shape.length === 1 ? c : shape[1] > 1 ? `${r},${c}` : `${c},0`}]`)).join("")}</tr>`);
    return `<table data-name="${name}"><caption>${name} <span>${shape.join(" × ")}</span></caption><tbody>${body.join("")}</tbody></table>`;
  };
  const section = document.createElement("section");
  section.dataset.net = index;
  section.innerHTML = `<div class="kicker">${escaped(net.name)} · ${net.params.toLocaleString("en")} numbers</div><div class="theta">${tensors(net).map(t => `<div class="wide">${tensor(t)}</div>`).join("")}</div>`;
  return section;
}

/** Write the numbers as they are now into a net's section. */
function refresh(net, section) {
  for (const cell of section.querySelectorAll("td[data-number]")) {
    const number = Number(cell.dataset.number), value = net.run.numbers[number], slider = cell.querySelector("input");
    cell.querySelector("span").textContent = slider.ariaValueText = shown(Number(cell.dataset.sign) * value);
    cell.classList.toggle("moved", value !== net.run.start[number]);
    if (slider !== document.activeElement) slider.value = value;
  }
}

/** Rectangles of a treemap by halves: [item, x, y, width, height] in percent. */
function halves(items, x = 0, y = 0, width = 100, height = 100, wide = 3) {
  if (items.length === 1) return [[items[0], x, y, width, height]];
  const total = items.reduce((sum, item) => sum + item.size, 0);
  let cut = 1, size = items[0].size;
  while (cut < items.length - 1 && size + items[cut].size / 2 < total / 2) size += items[cut++].size;
  const share = size / total, across = width * wide > height;
  const second = across ? [x + width * share, y, width * (1 - share), height] : [x, y + height * share, width, height * (1 - share)];
  const first = across ? [x, y, width * share, height] : [x, y, width, height * share];
  return [...halves(items.slice(0, cut), ...first, wide), ...halves(items.slice(cut), ...second, wide)];
}

function budget(net) {
  const first = new Map();
  net.run.ties.forEach((k, entry) => k && !first.has(Math.abs(k)) && first.set(Math.abs(k), entry));
  const owned = tensors(net).map((t, n) => ({ ...t, n, size: [...first.values()].filter(e => e >= t.first && e < t.first + t.size).length }));
  const items = owned.filter(t => t.size).sort((a, b) => b.size - a.size), section = document.createElement("section");
  section.innerHTML = `<div class="kicker">${escaped(net.name)} · ${net.params.toLocaleString("en")} numbers, each in the tensor that reads it first</div><div class="tree">${
    halves(items).map(([t, x, y, w, h]) => `<div title="${t.name}: ${t.size}" style="--n: ${t.n}; left: ${x}%; top: ${y}%; width: ${w}%; height: ${h}%"><b>${t.size}</b> ${t.name}</div>`).join("")}</div>`;
  return section;
}

// ---- drawing

function draw() {
  const [a, b] = state.pair, count = Math.max(...NETS.map(net => net.run.steps));
  state.k = Math.min(state.k, count - 1);
  for (const net of NETS) net.trace = net.run.decode(a, b);
  at("answer").textContent = at("stage").inert ? "?" : NETS[0].trace.answer;
  at("answer").className = NETS[0].trace.answer === a + b ? "" : "bad";
  at("columns").innerHTML = [...Array(count).keys()].reverse().map(k => {
    const { x, y, carry, right } = column(k), answers = NETS.map(net => net.trace.steps[k]).map(step =>
      `<span class="z ${!step || good(k, step.token) ? "" : "bad"}">${step ? k > COLUMNS ? "·" : named(step.token) : ""}</span>`);
    const label = k > COLUMNS ? "the end" : `digit ${k}: ${x} + ${y}${carry ? " + 1 carried" : ""}, ${right}`;
    return `<li><button type="button" value="${k}" aria-label="${label}" title="${label}" ${k === state.k ? 'aria-current="step"' : ""}
      ><span class="carry">${carry && k <= COLUMNS ? "1" : ""}</span><span>${k < COLUMNS ? x : "&nbsp;"}</span><span>${k < COLUMNS ? y : "&nbsp;"}</span>${answers.join("")}</button></li>`;
  }).join("");
  at("next").disabled = state.k === count - 1;
  at("back").disabled = state.k === 0;
  at("stage").replaceChildren(...NETS.map(card));
  NETS.forEach((net, i) => refresh(net, at("numbers").children[i]));
  at("reset").disabled = !NETS.some(moved);
  for (const button of at("worst").children) {
    const net = NETS[button.value], many = NETS.length > 1;
    button.textContent = `Worst pair${moved(net) ? " of the original" : many ? " of" : ""}${many ? ` ${net.name}` : ""}`;
  }
}

function ask() {
  let problem = "";
  const pair = [["a", "first"], ["b", "second"]].map(([id, which]) => {
    const fine = /^\d{1,10}$/.test(at(id).value);
    at(id).setAttribute("aria-invalid", !fine);
    if (!fine) problem ||= `The ${which} number must be a whole number from 0 to ${LARGEST}.`;
    return Number(at(id).value);
  });
  at("problem").textContent = problem;
  at("stage").inert = document.querySelector("nav").inert = Boolean(problem);
  if (problem) return void (at("answer").textContent = "?");
  state.pair = pair;
  draw();
}

function go(k) {
  const focused = at("columns").contains(document.activeElement);
  state.k = k;
  draw();
  if (focused) at("columns").querySelector("[aria-current]").focus();
  at("said").textContent = document.querySelector("#stage h2").textContent;
}

function put(pair, k = state.k) {
  [at("a").value, at("b").value] = pair;
  state.k = k ?? 0;
  ask();
}

/** Of a picture's own units, one of which is then a pixel: else a phone shows its words too small to read. */
const chartWidth = () => Math.min(900, Math.max(at("training").clientWidth - 40, 260));

function curve({ training: t }) {
  const W = chartWidth(), H = 300, last = Math.max(...t.curves.flatMap(c => c.steps), ...t.curve.steps);
  const x = step => 45 + (W - 60) * step / last, y = share => H - 30 - (H - 45) * share;
  const path = (c, cls) => `<path class="line ${cls}" d="M${c.steps.map((s, i) => `${x(s).toFixed(1)} ${y(c.exact[i]).toFixed(1)}`).join("L")}"/>`;
  return `<p>${escaped(t.words)}</p><svg class="chart" viewBox="0 0 ${W} ${H}" role="img" aria-label="share of sums that are right, by step of training">
    <rect class="frame" x="45" y="15" width="${W - 60}" height="${H - 45}"/>${t.curves.map(c => path(c, "")).join("")}${path(t.curve, "this")}
    ${[0, .5, 1].map(s => `<text class="name" x="40" y="${y(s) + 4}">${percent(s)}</text>`).join("")}${marks(last, x, H)}</svg>`;
}

const marks = (last, x, H) => [0, .5, 1].map(s =>
  `<text class="step" style="text-anchor: ${s === 1 ? "end" : "middle"}" x="${x(s * last)}" y="${H - 8}">${Math.round(s * last).toLocaleString("en")}</text>`).join("");

/** When carries of each length were learned: one row per length, one cell per evaluation. */
function lengths({ carries: { steps, right, learned } }) {
  const W = chartWidth(), row = 20, H = row * learned.length + 34, last = steps.at(-1), width = (W - 60) / steps.length, x = step => 45 + (W - 60) * step / last;
  const cells = right.map((shares, s) => shares.map((share, run) => `<rect x="${(45 + s * width).toFixed(1)}" y="${4 + row * run}" width="${width.toFixed(1)}" height="${row - 2}"
    style="fill: color-mix(in oklab, var(--accent) ${(100 * share).toFixed(0)}%, var(--line))"><title>${run} carries in a row, step ${steps[s]}: ${percent(share)} right</title></rect>`).join(""));
  const words = learned.map((step, run) => step === null ? "" : `${run} from step ${step.toLocaleString("en")}`).filter(Boolean);
  return `<h3>Carries</h3><p>Sums whose longest run of carries is 0 to 10 columns (rows), the share that is right by step. ${words.length ? `99 % right for good: ${words.join(", ")}.` : "No length is learned for good."}</p>
    <svg class="chart" viewBox="0 0 ${W} ${H}" role="img" aria-label="share of right sums by longest run of carries and step">${cells.join("")}
    ${learned.map((_, run) => `<text class="name" x="40" y="${17 + row * run}">${run}</text>`).join("")}${marks(last, x, H)}</svg>`;
}

function training() {
  const nets = NETS.filter(net => net.training || net.carries);
  if (nets.length) at("training").innerHTML = `<h2 class="head">Training</h2>${nets.map(net =>
    `<section><div class="kicker">${escaped(net.name)}</div>${net.training ? curve(net) : ""}${net.carries ? lengths(net) : ""}</section>`).join("")}`;
}

/** The planes of the loss: each a picture of its logarithm, dark where it is small. */
function landscape() {
  if (!MODEL.planes?.length) return;
  const about = ({ name, reach }) => `<b>${name}</b>: ±${percent(reach[0])} of |θ| across, ±${percent(reach[1])} up`;
  at("landscape").innerHTML = `<h2 class="head">The loss around it</h2><section><div class="kicker">${escaped(NETS[0].name)}</div>
    <p>Planes through θ, which is in the middle: along the two sharpest and the two flattest directions of the loss, and along two random ones.
    Dark: a loss of 0.001 and less; light: 10 and more; the line: 0.1.</p><div class="planes">${MODEL.planes.map(plane =>
      `<figure><canvas role="img" aria-label="loss, ${plane.name}"></canvas><figcaption>${about(plane)}</figcaption></figure>`).join("")}</div></section>`;
  at("landscape").querySelectorAll("canvas").forEach((canvas, i) => {
    const { losses } = MODEL.planes[i], n = losses.length, cell = 10, ink = canvas.getContext("2d");
    canvas.width = canvas.height = n * cell;
    losses.forEach((row, r) => row.forEach((log, c) => {
      const share = Math.min(Math.max((log + 3) / 4, 0), 1);
      ink.fillStyle = `oklch(${25 + 65 * share}% .13 ${280 - 200 * share})`;
      ink.fillRect(c * cell, r * cell, cell, cell);
      ink.fillStyle = "#fff"; // where the loss passes 0.1
      const inside = log < -1;
      if (c + 1 < n && inside !== losses[r][c + 1] < -1) ink.fillRect((c + 1) * cell - 1, r * cell, 2, cell);
      if (r + 1 < n && inside !== losses[r + 1][c] < -1) ink.fillRect(c * cell, (r + 1) * cell - 1, cell, 2);
    }));
  });
}

at("title").textContent = NETS.map(net => net.name).join(", ");
document.title = `${at("title").textContent}: how it adds`;
for (const id of ["stage", "numbers", "budget"]) at(id).style.setProperty("--count", NETS.length);
at("numbers").replaceChildren(...NETS.map(numbers));
at("budget").replaceChildren(...NETS.map(budget));
training();
landscape();
at("worst").innerHTML = NETS.map((net, i) => net.proof ? `<button type="button" value="${i}"></button>` : "").join("");
at("worst").addEventListener("click", event => {
  const proof = NETS[event.target.closest("button")?.value]?.proof;
  if (proof) put(proof.pair, proof.digit ?? NETS[event.target.value].run.decode(...proof.pair).steps.find(s => s.token !== Math.floor((proof.pair[0] + proof.pair[1]) / 10 ** s.k) % 10)?.k);
});
at("random").addEventListener("click", () => put([0, 0].map(() => Math.floor(Math.random() * (LARGEST + 1)))));
at("columns").addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button) go(Number(button.value));
});
at("next").addEventListener("click", () => go(state.k + 1));
at("back").addEventListener("click", () => go(state.k - 1));
document.querySelector("form").addEventListener("input", ask);
document.querySelector("form").addEventListener("submit", event => event.preventDefault());
at("numbers").addEventListener("input", event => {
  const cell = event.target.closest("td"), net = NETS[event.target.closest("section").dataset.net];
  net.run.numbers[cell.dataset.number] = Number(event.target.value);
  net.run.set();
  draw();
});
for (const kind of ["pointerover", "focusin"])
  at("numbers").addEventListener(kind, event => { // the same entry in the other nets, and all that read the same number
    const cell = event.target.closest("td[data-entry]");
    for (const same of at("numbers").querySelectorAll(".same")) same.classList.remove("same");
    if (cell) for (const same of at("numbers").querySelectorAll(`[data-entry="${cell.dataset.entry}"]`)) same.classList.add("same");
  });
at("reset").addEventListener("click", () => {
  for (const net of NETS) {
    net.run.numbers = [...net.run.start];
    net.run.set();
  }
  draw();
});
document.addEventListener("keydown", event => {
  if (event.target.matches("input") || at("stage").inert || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "ArrowLeft" && !at("next").disabled) go(state.k + 1);
  if (event.key === "ArrowRight" && !at("back").disabled) go(state.k - 1);
});
addEventListener("resize", draw);
put(MODEL.example);
