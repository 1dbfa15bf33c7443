"use strict";
const at = id => document.getElementById(id);
let MODEL;
try {
  MODEL = JSON.parse(at("model").textContent);
} catch {
  document.body.textContent = "The numbers are missing: adder-search writes this page with them.";
}

const turned = A => A[0].map((_, c) => A.map(row => row[c]));

/** Shares of a row of scores. */
function softmax(row) {
  const most = Math.max(...row), e = row.map(n => Math.exp(n - most)), sum = e.reduce((a, b) => a + b);
  return e.map(n => n / sum);
}

const WITH_COMMAS = new Intl.NumberFormat("en", {maximumFractionDigits: 9});
function shown(n) {
  if (n !== 0 && Math.abs(n) < 1e-6) return "~0";
  return WITH_COMMAS.format(Number(n.toPrecision(3)) || 0).replace("-", "−");
}
const factor = n => n < 0 ? `(${shown(n)})` : shown(n);
const percent = n => shown(100 * n) + " %";
const and = words => words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words.at(-1);

/** A matrix as a table: m has a name, numbers, rows, columns, and `share` where all are from 0 to 1. */
function table(m, part, result) {
  const most = m.share ? 1 : Math.max(1, ...m.numbers.flat().map(Math.abs));
  const cell = (n, r, c) => {
    const mix = 4 + (m.share ? 80 : 50) * Math.abs(n) / most, tint = n < 0 ? "--cold" : "--hot";
    const style = Math.abs(n) < 1e-6 ? "" : ` style="--tint: var(${tint}); --mix: ${mix.toFixed(0)}%"`;
    const kind = (result ? "pick " : "") + (style ? "" : "nil");
    return `<td class="${kind}" data-part="${part}" data-r="${r}" data-c="${c}"${style}>${shown(n)}</td>`;
  };
  const short = name => name === "accumulator" ? '<abbr title="accumulator">acc.</abbr>' : name;
  const row = (numbers, r) => `<tr class="${m.rows[r] === "eos" ? "eos" : ""}">
    <th scope="row">${short(m.rows[r])}</th>${numbers.map((n, c) => cell(n, r, c)).join("")}</tr>`;
  const head = m.columns.map(c => `<th scope="col">${short(c)}</th>`).join("");
  const size = `${m.rows.length} × ${m.columns.length}`;
  return `<table data-name="${m.name}"><caption>${m.name} <span>${size}</span></caption>
    <thead><tr><th></th>${head}</tr></thead><tbody>${m.numbers.map(row).join("")}</tbody></table>`;
}
