"use strict";
// The look of charts, and when they are drawn. Text from the data is shown as text, never as HTML.

// Plotly interprets some tags and entities in text, so escape them.
const plain = (text) =>
  String(text)
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/%/g, "&#37;")
    .replace(/\$/g, "&#36;");
const short = (text, most = 22) => {
  const all = Array.from(String(text));
  return plain(all.length > most ? all.slice(0, most - 1).join("") + "…" : all.join(""));
};
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
const whole = (number) => number.toLocaleString("en");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const faded = (hex, alpha) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
const narrow = () => innerWidth < 760;
const touch = matchMedia("(pointer: coarse)").matches;

const axis = (more = {}) => ({
  gridcolor: colour("line"),
  zerolinecolor: colour("line"),
  linecolor: colour("line"),
  tickcolor: colour("line"),
  automargin: true,
  ...more,
});
const layout = (more = {}) => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  separators: ".,",
  showlegend: false,
  dragmode: false,
  hovermode: "closest",
  font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
  margin: { l: 48, r: 12, t: 10, b: 44 },
  hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
  ...more,
});
const config = { responsive: true, displaylogo: false, displayModeBar: false };
const title = (text) => ({ text, font: { size: 12, color: colour("quiet") }, standoff: 8 });
const timeAxis = (more = {}) =>
  axis({
    type: isDate ? "date" : "linear",
    exponentformat: "none",
    separatethousands: true,
    title: title(isDate ? "" : data.time ? short(data.time) : data.clock === "number" ? "time" : "seconds"),
    ...more,
  });
const named = (names, most) => ({
  tickmode: "array",
  tickvals: names.map((_, i) => i),
  ticktext: names.map((name) => short(name, most)),
});
const wholeTicks = (most) => {
  // about eight, at round numbers
  const rough = Math.max(1, most / 8),
    power = 10 ** Math.floor(Math.log10(rough));
  return { tickmode: "linear", tick0: 0, dtick: power * [1, 2, 5, 10].find((step) => step * power >= rough) };
};
const slanted = (names) => ({
  tickangle: names.length > (narrow() ? 3 : 6) ? -45 : 0,
  tickfont: { size: names.length > 20 ? 9 : 12 },
});
const sequential = () => [
  [0, colour("empty")],
  [1, colour("full")],
];

const charts = new Map();
const heights = new Map();
const drawn = new Set();
const chart = (id, height, draw) => {
  if (!$(id)) return;
  heights.set(id, height);
  charts.set(id, () => draw(height()));
};
const fixed = (height) => () => height;
const draw = (id) => {
  drawn.add(id);
  const done = charts.get(id)();
  $(id).style.minHeight = "";
  return done;
};
// Reserve the height of charts that are not drawn yet, or the page would grow while scrolling to a section.
const reserve = () => {
  for (const [id, height] of heights) if (!drawn.has(id)) $(id).style.minHeight = `${height()}px`;
};

const rowsHigh = (rows, least = 180) => Math.max(least, Math.min(700, 70 + 17 * rows));
const someNames = (names, height, most = 18) => {
  // as many as fit
  const every = Math.max(1, Math.ceil((names.length * 15) / Math.max(60, height)));
  return {
    tickmode: "array",
    tickvals: names.map((_, i) => i).filter((i) => i % every === 0),
    ticktext: names.filter((_, i) => i % every === 0).map((name) => short(name, most)),
  };
};
