"use strict";
// One series: observed and filled values, bands, samples, held-out true values, a baseline.

const STEPS_DRAWN = 1000; // with more in view, only the extremes of bins are drawn
const BINS = 360;
const COLUMNS_AT_FIRST = 4;

const gappy = columns
  .map((_, j) => j)
  .sort((a, b) => columns[b].filled - columns[a].filled)
  .slice(0, COLUMNS_AT_FIRST)
  .sort((a, b) => a - b);
const view = {
  number: 0,
  series: null,
  latent: null,
  columns: new Set(gappy),
  range: null,
  show: { band: true, samples: series.samples > 0, truth: true },
  baseline: "",
};

const baselineOf = (kind, x, of, column) => {
  const values = new Float64Array(x.length).fill(NaN),
    usual = column.mean === null ? NaN : column.mean;
  const seen = [];
  of.state.forEach((state, t) => {
    if ((state & 3) === 1) seen.push(t);
  });
  const mean = seen.length ? seen.reduce((sum, t) => sum + of.value[t], 0) / seen.length : usual;
  for (let t = 0, k = 0; t < x.length; t++) {
    // k observations are at or before t
    while (k < seen.length && seen[k] <= t) k++;
    const before = k ? seen[k - 1] : -1,
      after = k < seen.length ? seen[k] : -1;
    if (kind === "mean") values[t] = mean;
    else if (kind === "forward") values[t] = before < 0 ? usual : of.value[before];
    else if (before < 0 || after < 0) values[t] = seen.length ? of.value[before < 0 ? after : before] : usual;
    else
      values[t] =
        of.value[before] + ((x[t] - x[before]) / (x[after] - x[before])) * (of.value[after] - of.value[before]);
    if ((of.state[t] & 3) === 1) values[t] = of.value[t];
  }
  return values;
};

const inView = (x, range) => {
  if (!range) return [0, x.length];
  let first = x.findIndex((time) => time >= range[0]),
    last = x.length;
  while (last > 0 && x[last - 1] > range[1]) last--;
  if (first < 0) first = x.length;
  return [Math.max(0, first - 1), Math.min(x.length, last + 1)];
};

// The steps at which a line through a gap is drawn: those of the gap, and the observations at its ends.
const besideGaps = (of, first, last) => {
  const near = new Uint8Array(last - first),
    gap = (t) => t >= 0 && t < of.state.length && (of.state[t] & 3) === 2;
  for (let t = first; t < last; t++)
    near[t - first] = gap(t) || ((of.state[t] & 3) === 1 && (gap(t - 1) || gap(t + 1))) ? 1 : 0;
  return near;
};

// Every step, or the extremes of bins if there are many steps.
const pointsOf = (x, values, keep, first, last) => {
  const xs = [],
    ys = [],
    at = [];
  const add = (t) => {
    xs.push(x[t]);
    ys.push(values[t]);
    at.push(t);
  };
  if (last - first <= STEPS_DRAWN) {
    for (let t = first; t < last; t++) if (keep(t) && !Number.isNaN(values[t])) add(t);
  } else {
    const step = (last - first) / BINS;
    for (let s = 0; s < BINS; s++) {
      let low = -1,
        high = -1;
      for (let t = Math.floor(first + s * step); t < Math.floor(first + (s + 1) * step); t++) {
        if (!keep(t) || Number.isNaN(values[t])) continue;
        if (low < 0 || values[t] < values[low]) low = t;
        if (high < 0 || values[t] > values[high]) high = t;
      }
      if (low >= 0) {
        add(Math.min(low, high));
        if (low !== high) add(Math.max(low, high));
      }
    }
  }
  return { x: xs, y: ys, at };
};

const lineOf = (x, values, near, first, last) => {
  const xs = [],
    ys = [];
  for (let t = first; t < last; t++) {
    if (near[t - first] && !Number.isNaN(values[t])) {
      xs.push(x[t]);
      ys.push(values[t]);
    } else if (xs.length && ys[ys.length - 1] !== null) {
      xs.push(x[t]);
      ys.push(null);
    }
  }
  return { x: xs, y: ys };
};

// Closed outlines, one for each run without a break, with null between them.
const bandOf = (x, low, high, of, near, first, last) => {
  const xs = [],
    ys = [];
  let run = [];
  const close = () => {
    if (run.length) {
      for (const [time, , top] of run) {
        xs.push(time);
        ys.push(top);
      }
      for (const [time, bottom] of run.slice().reverse()) {
        xs.push(time);
        ys.push(bottom);
      }
      xs.push(run[0][0], run[0][0]);
      ys.push(run[0][2], null);
    }
    run = [];
  };
  if (last - first <= STEPS_DRAWN) {
    for (let t = first; t < last; t++) {
      if (near[t - first] && !Number.isNaN(low[t])) run.push([x[t], low[t], high[t]]);
      else close();
      if (run.length > 1 && near[t - first] && (of.state[t] & 3) === 1) {
        close();
        if (near[t - first]) run.push([x[t], low[t], high[t]]);
      }
    }
  } else {
    const step = (last - first) / BINS;
    for (let s = 0; s < BINS; s++) {
      let bottom = Infinity,
        top = -Infinity;
      const from = Math.floor(first + s * step),
        to = Math.floor(first + (s + 1) * step);
      for (let t = from; t < to; t++)
        if ((of.state[t] & 3) === 2 && !Number.isNaN(low[t])) {
          bottom = Math.min(bottom, low[t]);
          top = Math.max(top, high[t]);
        }
      if (bottom <= top) run.push([x[from], bottom, top], [x[Math.max(from, to - 1)], bottom, top]);
      else close();
    }
  }
  close();
  return { x: xs, y: ys };
};

// To four digits, and no finer than the power of ten above `step`.
const shownNumber = (value, step = 0) => {
  if (!Number.isFinite(value)) return "–";
  const unit = step > 0 ? Math.ceil(Math.log10(step)) : -Infinity,
    size = value ? Math.floor(Math.log10(Math.abs(value))) : 0,
    digits = Math.min(4, size - unit + 1);
  if (digits < 1) return Math.abs(value) < 10 ** unit / 2 ? "0" : shownNumber(Math.sign(value) * 10 ** unit);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: 4 });
};
const labelOf = (column, value, step = 0) =>
  column.labels ? short(column.labels[Math.round(value)] ?? "–", 40) : shownNumber(value, step);

const hoverOf = (column, of, t) => {
  const value = labelOf(column, of.value[t], of.step[t]),
    end = (at) => labelOf(column, at, isClass(column) ? 0 : of.bandStep[t] * (of.isLog ? at : 1));
  if (!Number.isNaN(of.certainty[t])) return `filled: ${value}<br>probability ${percent(of.certainty[t])}`;
  if (Number.isNaN(of.low[t])) return `filled: ${value}`;
  const span = (low, high) => `${end(low)} to ${end(high)}`;
  return `filled: ${value}<br>50&#37;: ${span(of.low50[t], of.high50[t])}<br>90&#37;: ${span(of.low[t], of.high[t])}`;
};

// What the traces of one column share: its values, the steps in view, the axes.
const partInView = (j, place, first, last) => {
  const of = view.series.columns[j];
  return {
    of,
    first,
    last,
    x: view.series.x,
    column: columns[j],
    near: besideGaps(of, first, last),
    full: last - first <= STEPS_DRAWN,
    on: { xaxis: "x", yaxis: place ? `y${place + 1}` : "y" },
  };
};
const lineTrace = (part, name, points, line) => ({
  type: "scatter",
  mode: "lines",
  name,
  ...points,
  line,
  hoverinfo: "skip",
  connectgaps: false,
  ...part.on,
});
const pointTrace = (part, name, points, marker, label, hover) => ({
  type: "scatter",
  mode: "markers",
  name,
  x: points.x,
  y: points.y,
  marker,
  customdata: points.at.map(label),
  hovertemplate: `${hover}%{customdata}<br>%{x}<extra></extra>`,
  ...part.on,
});

const bandTraces = (part) => {
  const { of, x, near, first, last } = part;
  if (!view.show.band || !series.bands || isUnordered(part.column)) return [];
  return [
    ["90 % band", of.low, of.high, 0.17],
    ["50 % band", of.low50, of.high50, 0.33],
  ].map(([name, low, high, alpha]) => ({
    ...lineTrace(part, name, bandOf(x, low, high, of, near, first, last), { width: 0 }),
    fill: "toself",
    fillcolor: faded(colour("filled"), alpha),
  }));
};
const sampleTraces = (part) => {
  const { of, x, near, first, last } = part;
  if (!view.show.samples || !part.full || isUnordered(part.column)) return [];
  const look = { color: faded(colour("sample"), 0.75), width: 0.8, dash: "dot" };
  return of.samples.map((sample) => lineTrace(part, "sample", lineOf(x, sample, near, first, last), look));
};
const baselineTraces = (part) => {
  const { of, x, column, first, last } = part;
  if (!view.baseline || column.kind === "text" || column.labels) return [];
  const points = pointsOf(x, baselineOf(view.baseline, x, of, column), () => true, first, last),
    shape = view.baseline === "linear" ? "linear" : "hv";
  return [lineTrace(part, "baseline", points, { color: colour("baseline"), width: 1.4, dash: "dash", shape })];
};
const filledLineTraces = (part) => {
  const { of, x, near, first, last } = part;
  if (!part.full || isClass(part.column)) return [];
  const look = { color: colour("filled"), width: 1.5 };
  return [lineTrace(part, "filled line", lineOf(x, of.value, near, first, last), look)];
};
const observedTrace = (part) => {
  const { of, column } = part,
    points = pointsOf(part.x, of.value, (t) => (of.state[t] & 3) === 1, part.first, part.last),
    marker = { color: colour("observed"), size: part.full ? 4 : 3 };
  return pointTrace(part, "observed", points, marker, (t) => labelOf(column, of.value[t]), "observed: ");
};
const filledTrace = (part) => {
  const { of, column, full } = part,
    points = pointsOf(part.x, of.value, (t) => (of.state[t] & 3) === 2, part.first, part.last),
    line = { color: colour("filled"), width: full ? 1.6 : 1 },
    marker = { color: colour("paper"), size: full ? 6 : 3, symbol: "circle", line };
  return pointTrace(part, "filled", points, marker, (t) => hoverOf(column, of, t), "");
};
const truthTraces = (part) => {
  const { of, column } = part;
  if (!view.show.truth || !series.truth) return [];
  const points = pointsOf(part.x, of.truth, () => true, part.first, part.last),
    line = { color: colour("truth"), width: 1.8 },
    marker = { color: colour("truth"), size: 6, symbol: "x-thin", line },
    name = "held-out truth";
  return [pointTrace(part, name, points, marker, (t) => labelOf(column, of.truth[t]), `${name}: `)];
};
const tracesOf = (j, place, first, last) => {
  const part = partInView(j, place, first, last),
    points = [observedTrace(part), filledTrace(part)];
  return [
    ...bandTraces(part),
    ...sampleTraces(part),
    ...baselineTraces(part),
    ...filledLineTraces(part),
    // When zoomed out, observed points are on top, or filled points would hide them.
    ...(part.full ? points : points.reverse()),
    ...truthTraces(part),
  ];
};

// The range of everything in view except samples, which may have outliers.
const rangeOf = (j, first, last) => {
  const of = view.series.columns[j],
    bands = view.show.band && series.bands && !isUnordered(columns[j]);
  let low = Infinity,
    high = -Infinity;
  for (const values of [of.value, ...(bands ? [of.low, of.high] : []), ...(view.show.truth ? [of.truth] : [])])
    for (let t = first; t < last; t++)
      if (!Number.isNaN(values[t])) {
        low = Math.min(low, values[t]);
        high = Math.max(high, values[t]);
      }
  if (low > high) return [0, 1];
  const margin = 0.06 * (high - low) || 0.5 * Math.abs(high) || 1;
  return [low - margin, high + margin];
};

const describeView = () => {
  const x = view.series.x,
    [first, last] = inView(x, view.range);
  const inGaps =
    last - first > STEPS_DRAWN
      ? `The ${whole(last - first)} steps in view are drawn as the extremes of ${BINS} bins; zoom in to see every step${view.show.samples ? " and the samples" : ""}.`
      : "";
  const part =
    view.range && x.length > 1
      ? `${whole(last - first)} of ${whole(x.length)} steps are shown${view.zoomed ? ", those with the most gaps" : ""}; “all” shows the whole series. `
      : "";
  const hint = touch || x.length < 2 ? "" : "Drag over the plot to zoom into all columns. ";
  $("seen").textContent = view.columns.size ? part + hint + inGaps : "Choose a column.";
};
const shownColumns = () => [...view.columns].sort((a, b) => a - b);
const seriesHeight = () => 60 + Math.max(1, view.columns.size) * (narrow() ? 140 : 165);
const drawSeries = () => {
  if (!view.series) return Promise.resolve();
  const shown = shownColumns(),
    x = view.series.x,
    [first, last] = inView(x, view.range);
  const height = seriesHeight(),
    gap = 26 / height;
  const range =
    view.range ||
    [x[0], x[x.length - 1]].map(
      (end, i) => end + (i ? 1 : -1) * (x.length > 1 ? 0.012 * (x[x.length - 1] - x[0]) : isDate ? 43200000 : 1),
    );
  const frame = layout({
    height,
    margin: { l: narrow() ? 44 : 56, r: 10, t: 24, b: 36 },
    dragmode: touch ? false : "zoom",
    annotations: [],
  });
  frame.xaxis = timeAxis({ range, anchor: shown.length > 1 ? `y${shown.length}` : "y" });
  const traces = shown.flatMap((j, place) => {
    const top = 1 - place / shown.length,
      bottom = 1 - (place + 1) / shown.length + (place + 1 < shown.length ? gap : 0),
      column = columns[j];
    const ticks = column.labels
      ? {
          tickmode: "array",
          tickvals: column.labels.map((_, i) => i),
          ticktext: column.labels.map((label) => short(label, narrow() ? 8 : 14)),
          range: [-0.5, column.labels.length - 0.5],
        }
      : {};
    frame[place ? `yaxis${place + 1}` : "yaxis"] = axis({
      domain: [bottom, top],
      fixedrange: true,
      zeroline: false,
      nticks: 5,
      range: rangeOf(j, first, last),
      ...ticks,
    });
    frame.annotations.push({
      xref: "paper",
      yref: "paper",
      x: 0,
      y: top,
      xanchor: "left",
      yanchor: "bottom",
      showarrow: false,
      text: `<b>${short(column.name, narrow() ? 34 : 80)}</b>`,
      font: { size: 12, color: colour("ink") },
    });
    if (column.mean === null && !column.filled)
      frame.annotations.push({
        xref: "paper",
        yref: "paper",
        x: 0.5,
        y: (top + bottom) / 2,
        showarrow: false,
        text: "never observed, stays missing",
        font: { size: 12, color: colour("quiet") },
      });
    return tracesOf(j, place, first, last);
  });
  describeView();
  return Plotly.react("plot", traces, frame, { ...config, doubleClick: false }).then((plot) => {
    if (!plot.hasListeners) {
      plot.hasListeners = true;
      plot.on("plotly_relayout", (change) => {
        if ("xaxis.range[0]" in change)
          setRange([asNumber(change["xaxis.range[0]"]), asNumber(change["xaxis.range[1]"])]);
      });
      plot.on("plotly_doubleclick", () => {
        setRange(null);
        return false;
      });
    }
  });
};
chart("plot", seriesHeight, drawSeries);

const setRange = (range) => {
  view.zoomed = false;
  const x = view.series.x,
    least = x.length > 1 ? (x[x.length - 1] - x[0]) / x.length : 1;
  view.range = range && range[1] - range[0] > least ? range : range ? view.range : null;
  drawSeries();
};

const zoom = (how) => {
  if (!view.series || view.series.x.length < 2) return;
  const x = view.series.x,
    ends = [x[0], x[x.length - 1]],
    [a, b] = view.range || ends,
    size = b - a;
  if (how === "all") setRange(null);
  if (how === "in") setRange([a + size / 4, b - size / 4]);
  if (how === "out") setRange(size >= (ends[1] - ends[0]) * 0.5 ? null : [a - size / 2, b + size / 2]);
  if (how === "left") setRange([a - size / 2, b - size / 2]);
  if (how === "right") setRange([a + size / 2, b + size / 2]);
};
document
  .querySelectorAll("[data-zoom]")
  .forEach((button) => button.addEventListener("click", () => zoom(button.dataset.zoom)));

// A long series is first shown where it has the most gaps, because bands cannot be seen when zoomed out.
const mostGaps = ({ x, steps, columns: perColumn }) => {
  const size = narrow() ? 60 : 150;
  if (steps <= 2 * size) return null;
  const gaps = new Float64Array(steps + 1),
    sums = new Float64Array(steps + 1);
  for (const j of view.columns)
    perColumn[j].state.forEach((state, t) => {
      gaps[t] += (state & 3) === 2;
    });
  for (let t = 0; t < steps; t++) sums[t + 1] = sums[t] + gaps[t];
  let best = 0;
  for (let t = 0; t + size < steps; t++) if (sums[t + size] - sums[t] > sums[best + size] - sums[best]) best = t;
  return [x[best], x[best + size]];
};
