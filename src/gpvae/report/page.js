"use strict";
// The page's charts. What there is to show lies in the page as JSON; the values of series are unpacked when one is
// chosen (see packing.py for their layout). Everything from the data is set as text, never as HTML.
(async () => {
  const nonce = document.currentScript.nonce;
  const $ = (id) => document.getElementById(id);
  const report = JSON.parse($("data").textContent);
  const { data, columns, series, trust, missing, latent, training, images } = report;
  const STEPS_DRAWN = 2000; // beyond so many in view, extremes of stretches are drawn instead
  const STRETCHES = 700;
  const COLUMNS_AT_FIRST = 4;

  // --- unpacking ---------------------------------------------------------------------------------------------------

  const unpacked = async (id) => {
    const text = atob($(id).textContent.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  class Planes {
    constructor(bytes) { this.bytes = bytes; this.at = 0; }
    take(count) { this.at += count; return this.bytes.subarray(this.at - count, this.at); }
    numbers(count, Kind) { // byte by byte: all first bytes, all second bytes, …
      const size = Kind.BYTES_PER_ELEMENT, from = this.take(count * size), whole = new Uint8Array(count * size);
      for (let b = 0; b < size; b++) for (let i = 0; i < count; i++) whole[i * size + b] = from[b * count + i];
      return new Kind(whole.buffer);
    }
  }

  const count = (state, test) => state.reduce((n, each) => n + (test(each) ? 1 : 0), 0);

  const readPack = async (number) => {
    const { first, last } = series.packs[number], planes = new Planes(await unpacked(`pack-${number}`));
    const lengths = series.lengths.slice(first, last), rows = lengths.reduce((a, b) => a + b, 0);
    const cells = rows * columns.length, groups = (last - first) * columns.length;
    const times = planes.numbers(rows, Float64Array), state = planes.take(cells);
    const filled = count(state, (s) => (s & 3) === 2);
    const observed = planes.numbers(count(state, (s) => (s & 3) === 1), Float32Array);
    const truth = series.truth ? planes.numbers(count(state, (s) => s & 4), Float32Array) : null;
    const [lowest, span, widest] = [0, 1, 2].map(() => planes.numbers(groups, Float32Array));
    const mean = planes.numbers(filled, Uint16Array);
    const [width, place, lower, upper] = series.bands ? [0, 1, 2, 3].map(() => planes.take(filled)) : [];
    const samples = series.bands ? Array.from({ length: series.samples }, () => planes.take(filled)) : [];
    const certainty = series.certainty ? planes.take(filled) : null;
    return { first, lengths, times, state, observed, truth, lowest, span, widest, mean, width, place, lower, upper, samples, certainty };
  };

  const isClass = (column) => ["binary", "categorical", "ordinal"].includes(column.kind);
  const isUnordered = (column) => ["binary", "categorical"].includes(column.kind);

  const snapped = (column, value) => {
    if (column.kind === "count") return Math.round(value);
    if (!isClass(column) || !column.levels) return value;
    return column.levels.reduce((best, level) => (Math.abs(level - value) < Math.abs(best - value) ? level : best));
  };

  // One series of a pack: for each column arrays over its steps, NaN where there is nothing.
  const seriesOf = (pack, number) => {
    const local = number - pack.first, before = pack.lengths.slice(0, local).reduce((a, b) => a + b, 0);
    const steps = pack.lengths[local], from = before * columns.length;
    let seen = count(pack.state.subarray(0, from), (s) => (s & 3) === 1);
    let full = count(pack.state.subarray(0, from), (s) => (s & 3) === 2);
    let held = count(pack.state.subarray(0, from), (s) => s & 4);
    const x = Array.from(pack.times.subarray(before, before + steps), shownTime);
    const found = columns.map((column, j) => {
      const none = () => new Float64Array(steps).fill(NaN);
      const of = { state: pack.state.subarray(from + j * steps, from + (j + 1) * steps), value: none(), truth: none(), low: none(), high: none(), low50: none(), high50: none(), certainty: none(), samples: pack.samples.map(none) };
      const group = local * columns.length + j, levels = ["count", "binary", "categorical", "ordinal"].includes(column.kind) ? 65535 : series.levels;
      for (let t = 0; t < steps; t++) {
        const state = of.state[t];
        if (state & 4) of.truth[t] = pack.truth[held++];
        if ((state & 3) === 1) {
          const value = pack.observed[seen++];
          for (const each of [of.value, of.low, of.high, of.low50, of.high50, ...of.samples]) each[t] = value;
        } else if ((state & 3) === 2) {
          const i = full++;
          const value = (of.value[t] = snapped(column, pack.lowest[group] + (pack.mean[i] / levels) * pack.span[group]));
          if (pack.width && pack.width[i] < 255) {
            const width = pack.widest[group] * (pack.width[i] / 127) ** 2, low = value - (pack.place[i] / 32 - 2) * width;
            of.low[t] = snapped(column, low);
            of.high[t] = snapped(column, low + width);
            of.low50[t] = snapped(column, low + (pack.lower[i] / 32) * width);
            of.high50[t] = snapped(column, low + (pack.upper[i] / 32) * width);
            of.samples.forEach((each, k) => { each[t] = snapped(column, low + (pack.samples[k][i] / 16 - 7.5) * width); });
          }
          if (pack.certainty && isClass(column)) of.certainty[t] = pack.certainty[i] / 255;
        }
      }
      return of;
    });
    return { x, steps, columns: found };
  };

  let lastPack = { number: -1, pack: null };
  const chosenSeries = async (number) => {
    const place = series.packs.findIndex(({ first, last }) => first <= number && number < last);
    if (place < 0) return null;
    if (lastPack.number !== place) lastPack = { number: place, pack: await readPack(place) };
    return seriesOf(lastPack.pack, number);
  };

  const isDate = data.clock === "datetime" && data.origin !== null;
  const shownTime = (time) => (isDate ? (data.origin + time) * 1000 : time);
  const asNumber = (end) => (typeof end === "string" ? Date.parse(end.replace(" ", "T") + (end.length > 10 ? "Z" : "")) : end);

  // --- text and colours --------------------------------------------------------------------------------------------

  // Plotly reads some tags and entities in its texts: give it text in which there are none.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%/g, "&#37;").replace(/\$/g, "&#36;");
  const short = (text, most = 22) => { const all = Array.from(String(text)); return plain(all.length > most ? all.slice(0, most - 1).join("") + "…" : all.join("")); };
  const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
  const whole = (number) => number.toLocaleString("en");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const faded = (hex, alpha) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
  const narrow = () => innerWidth < 760;
  const touch = matchMedia("(pointer: coarse)").matches;

  const axis = (more = {}) => ({ gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"), automargin: true, ...more });
  const layout = (more = {}) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", separators: ".,", showlegend: false, dragmode: false, hovermode: "closest",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") }, margin: { l: 48, r: 12, t: 10, b: 44 },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } }, ...more,
  });
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const title = (text) => ({ text, font: { size: 12, color: colour("quiet") }, standoff: 8 });
  const timeAxis = (more = {}) => axis({ type: isDate ? "date" : "linear", title: title(isDate ? "" : data.time ? short(data.time) : data.clock === "number" ? "time" : "seconds"), ...more });
  const named = (names, most) => ({ tickmode: "array", tickvals: names.map((_, i) => i), ticktext: names.map((name) => short(name, most)) });
  const slanted = (names) => ({ tickangle: names.length > (narrow() ? 3 : 6) ? -45 : 0, tickfont: { size: names.length > 20 ? 9 : 12 } });
  const sequential = () => [[0, colour("empty")], [1, colour("full")]];

  // --- charts that are drawn when they come into sight -------------------------------------------------------------

  const charts = new Map();
  const drawn = new Set();
  const chart = (id, draw) => { if ($(id)) charts.set(id, draw); };
  const draw = (id) => { drawn.add(id); return charts.get(id)(); };

  const rowsHigh = (rows, least = 180) => Math.max(least, Math.min(700, 70 + 17 * rows));
  const someNames = (names, height, most = 18) => { // as many as there is room for
    const every = Math.max(1, Math.ceil((names.length * 15) / Math.max(60, height)));
    return { tickmode: "array", tickvals: names.map((_, i) => i).filter((i) => i % every === 0), ticktext: names.filter((_, i) => i % every === 0).map((name) => short(name, most)) };
  };

  chart("map-time", () => {
    const { times, shares } = missing.over_time, height = rowsHigh(missing.columns.length);
    const x = times.map(shownTime);
    return Plotly.react("map-time", [{
      type: "heatmap", x: x.length > 1 ? x : undefined, z: shares, zmin: 0, zmax: 1, colorscale: sequential(), xgap: 0, ygap: 1,
      customdata: shares.map((row, i) => row.map(() => plain(missing.columns[i]))),
      hovertemplate: "%{customdata}<br>%{x}<br>%{z:.0%} missing<extra></extra>",
      colorbar: { thickness: 10, tickformat: ".0%", tickvals: [0, 0.5, 1], outlinewidth: 0, len: 0.9 },
    }], layout({ height, xaxis: timeAxis({ showgrid: false }), yaxis: axis({ ...someNames(missing.columns, height - 60), autorange: "reversed", showgrid: false }) }), config);
  });

  chart("map-series", () => {
    const height = rowsHigh(missing.columns.length), shares = missing.over_series.shares;
    const z = missing.columns.map((_, j) => shares.map((row) => row[j]));
    const every = missing.over_series.series / missing.over_series.groups;
    return Plotly.react("map-series", [{
      type: "heatmap", x: shares.map((_, i) => Math.round((i + 0.5) * every + 0.5)), z, zmin: 0, zmax: 1, colorscale: sequential(), ygap: 1,
      customdata: z.map((row, i) => row.map(() => plain(missing.columns[i]))),
      hovertemplate: "%{customdata}<br>%{z:.0%} missing<extra></extra>",
      colorbar: { thickness: 10, tickformat: ".0%", tickvals: [0, 0.5, 1], outlinewidth: 0, len: 0.9 },
    }], layout({ height, xaxis: axis({ title: title("series, from the fullest to the emptiest"), showgrid: false }), yaxis: axis({ ...someNames(missing.columns, height - 60), autorange: "reversed", showgrid: false }) }), config);
  });

  chart("map-pixels", () => Plotly.react("map-pixels", [{
    type: "heatmap", z: missing.pixels, zmin: 0, zmax: 1, colorscale: sequential(), hovertemplate: "row %{y}, column %{x}: %{z:.0%} missing<extra></extra>",
    colorbar: { thickness: 10, tickformat: ".0%", outlinewidth: 0 },
  }], layout({ height: 300, xaxis: axis({ constrain: "domain", showgrid: false }), yaxis: axis({ autorange: "reversed", scaleanchor: "x", showgrid: false }) }), config));

  chart("gap-lengths", () => {
    const groups = missing.gaps.groups;
    return Plotly.react("gap-lengths", [{
      type: "bar", x: groups.map((_, i) => i), y: groups.map((each) => each.gaps), marker: { color: colour("filled") },
      customdata: groups.map((each) => whole(each.values)), hovertemplate: "%{y:,} gaps with %{customdata} missing values<extra></extra>",
    }], layout({ height: 260, xaxis: axis({ title: title("length in steps"), ...named(groups.map((each) => each.name)) }), yaxis: axis({ title: title("gaps"), rangemode: "tozero" }) }), config);
  });

  chart("together", () => {
    const { columns: names, correlation, given } = missing.together, height = rowsHigh(names.length, 240);
    return Plotly.react("together", [{
      type: "heatmap", z: correlation, zmin: -1, zmax: 1, xgap: 1, ygap: 1,
      colorscale: [[0, colour("truth")], [0.5, colour("empty")], [1, colour("full")]],
      texttemplate: names.length <= 10 && !narrow() ? "%{z:.1f}" : "",
      customdata: given.map((row, i) => row.map((share, j) => `where ${plain(names[i])} is missing,<br>${plain(names[j])} is too in ${percent(share)} of the steps`)),
      hovertemplate: "%{customdata}<br>correlation %{z:.2f}<extra></extra>",
      colorbar: { thickness: 10, tickvals: [-1, 0, 1], outlinewidth: 0, len: 0.9 },
    }], layout({ height, xaxis: axis({ ...named(names, 12), ...slanted(names), showgrid: false }), yaxis: axis({ ...someNames(names, height - 70), autorange: "reversed", showgrid: false }) }), config);
  });

  // A share with its interval, for each of some names, beside the 90 % that is promised.
  const shares = (id, each, xTitle, horizontal) => {
    const height = horizontal ? Math.max(180, 80 + 22 * each.length) : 290;
    const value = each.map((one) => one.share), places = each.map((_, i) => i);
    const bars = { type: "data", symmetric: false, array: each.map((one) => one.high - one.share), arrayminus: each.map((one) => one.share - one.low), color: colour("filled"), thickness: 1.5 };
    const lowest = Math.max(0, Math.min(0.8, ...each.map((one) => one.low)) - 0.05);
    const promise = { type: "line", line: { color: colour("truth"), width: 2, dash: "dash" }, ...(horizontal ? { x0: 0.9, x1: 0.9, yref: "paper", y0: 0, y1: 1 } : { y0: 0.9, y1: 0.9, xref: "paper", x0: 0, x1: 1 }) };
    const scale = axis({ tickformat: ".0%", range: [lowest, 1.01], title: horizontal ? title("inside the 90 % interval") : title("inside the 90 %") });
    const names = axis({ ...named(each.map((one) => one.name), horizontal ? 22 : 16), showgrid: false, title: title(xTitle) });
    return Plotly.react(id, [{
      type: "scatter", mode: "markers", x: horizontal ? value : places, y: horizontal ? places : value, [horizontal ? "error_x" : "error_y"]: bars,
      marker: { color: colour("filled"), size: 9, symbol: "diamond" }, customdata: each.map((one) => `${percent(one.share, 1)} of ${whole(one.cells)} cells`),
      hovertemplate: "%{customdata}<extra></extra>",
    }], layout({ height, shapes: [promise], xaxis: horizontal ? scale : names, yaxis: horizontal ? { ...names, autorange: "reversed" } : scale }), config);
  };
  if (trust.by_column) chart("by-column", () => shares("by-column", trust.by_column.columns, "", true));
  if (trust.by_distance) chart("by-distance", () => shares("by-distance", trust.by_distance.groups, "steps to the nearest observation of the column", false));

  if (trust.calibration) chart("calibration", () => {
    const points = trust.calibration.points, level = points.map((point) => point.level);
    return Plotly.react("calibration", [
      { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: colour("truth"), dash: "dash", width: 2 }, hoverinfo: "skip" },
      {
        type: "scatter", mode: "lines+markers", x: level, y: points.map((point) => point.share), line: { color: colour("filled"), width: 2 }, marker: { size: 8, symbol: "diamond", color: colour("filled") },
        error_y: { type: "data", symmetric: false, array: points.map((p) => p.high - p.share), arrayminus: points.map((p) => p.share - p.low), color: colour("filled"), thickness: 1.2 },
        hovertemplate: "%{x:.0%} intervals hold %{y:.1%}<extra></extra>",
      },
    ], layout({
      height: 330, xaxis: axis({ title: title("promised"), tickformat: ".0%", range: [0, 1] }), yaxis: axis({ title: title("held"), tickformat: ".0%", range: [0, 1] }),
      annotations: [
        { x: 0.03, y: 0.97, xanchor: "left", showarrow: false, text: "above the line: too wide", font: { color: colour("quiet"), size: 11 } },
        { x: 0.97, y: 0.03, xanchor: "right", showarrow: false, text: "below the line: too narrow", font: { color: colour("quiet"), size: 11 } },
      ],
    }), config);
  });

  if (trust.errors) chart("errors", () => {
    const each = trust.errors.methods;
    return Plotly.react("errors", [{
      type: "bar", orientation: "h", y: each.map((_, i) => i), x: each.map((one) => one.error),
      marker: { color: each.map((one) => (one.own ? colour("filled") : colour("line"))), line: { color: colour("quiet"), width: 1 }, pattern: { shape: each.map((one) => (one.own ? "" : "/")), fgcolor: colour("quiet"), size: 6, solidity: 0.15 } },
      error_x: { type: "data", symmetric: false, array: each.map((one) => one.high - one.error), arrayminus: each.map((one) => one.error - one.low), color: colour("ink"), thickness: 1.5 },
      hovertemplate: "%{x:.3f}<extra></extra>",
    }], layout({ height: Math.max(200, 90 + 38 * each.length), xaxis: axis({ title: title("mean absolute error (standard deviations)"), rangemode: "tozero" }), yaxis: axis({ ...named(each.map((one) => one.name)), autorange: "reversed", showgrid: false }) }), config);
  });

  if (trust.pit) chart("pit", () => {
    const bins = trust.pit.shares, spread = 1.96 * Math.sqrt(0.09 / trust.pit.cells);
    return Plotly.react("pit", [{ type: "bar", x: bins.map((_, i) => (i + 0.5) / 10), width: bins.map(() => 0.094), y: bins, marker: { color: colour("filled") }, hovertemplate: "%{y:.1%} of the cells<extra></extra>" }],
      layout({
        height: 290, xaxis: axis({ title: title("share of the draws below the truth"), tickformat: ".0%", range: [0, 1], showgrid: false }), yaxis: axis({ title: title("cells"), tickformat: ".0%", rangemode: "tozero" }),
        shapes: [
          { type: "rect", xref: "paper", x0: 0, x1: 1, y0: 0.1 - spread, y1: 0.1 + spread, fillcolor: faded(colour("truth"), 0.18), line: { width: 0 }, layer: "above" },
          { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0.1, y1: 0.1, line: { color: colour("truth"), width: 2, dash: "dash" } },
        ],
      }), config);
  });

  // --- the series view ---------------------------------------------------------------------------------------------

  const gappy = columns.map((_, j) => j).sort((a, b) => columns[b].filled - columns[a].filled).slice(0, COLUMNS_AT_FIRST).sort((a, b) => a - b);
  const view = { number: 0, series: null, columns: new Set(gappy), range: null, show: { band: true, samples: series.samples > 0, truth: true }, baseline: "" };

  const baselineOf = (kind, x, of, column) => {
    const values = new Float64Array(x.length).fill(NaN), usual = column.mean === null ? NaN : column.mean;
    const seen = []; of.state.forEach((state, t) => { if ((state & 3) === 1) seen.push(t); });
    const mean = seen.length ? seen.reduce((sum, t) => sum + of.value[t], 0) / seen.length : usual;
    for (let t = 0, k = 0; t < x.length; t++) { // k observations lie before t, or at it
      while (k < seen.length && seen[k] <= t) k++;
      const before = k ? seen[k - 1] : -1, after = k < seen.length ? seen[k] : -1;
      if (kind === "mean") values[t] = mean;
      else if (kind === "forward") values[t] = before < 0 ? usual : of.value[before];
      else if (before < 0 || after < 0) values[t] = seen.length ? of.value[before < 0 ? after : before] : usual;
      else values[t] = of.value[before] + ((x[t] - x[before]) / (x[after] - x[before])) * (of.value[after] - of.value[before]);
      if ((of.state[t] & 3) === 1) values[t] = of.value[t];
    }
    return values;
  };

  const inView = (x, range) => {
    if (!range) return [0, x.length];
    let first = x.findIndex((time) => time >= range[0]), last = x.length;
    while (last > 0 && x[last - 1] > range[1]) last--;
    if (first < 0) first = x.length;
    return [Math.max(0, first - 1), Math.min(x.length, last + 1)];
  };

  // The steps at which a line through a gap is drawn: the gap's, and the observation at either end of it.
  const besideGaps = (of, first, last) => {
    const near = new Uint8Array(last - first), gap = (t) => t >= 0 && t < of.state.length && (of.state[t] & 3) === 2;
    for (let t = first; t < last; t++) near[t - first] = gap(t) || (((of.state[t] & 3) === 1) && (gap(t - 1) || gap(t + 1))) ? 1 : 0;
    return near;
  };

  // In full: every step. Else the extremes of stretches of steps.
  const pointsOf = (x, values, keep, first, last) => {
    const xs = [], ys = [], at = [];
    const add = (t) => { xs.push(x[t]); ys.push(values[t]); at.push(t); };
    if (last - first <= STEPS_DRAWN) {
      for (let t = first; t < last; t++) if (keep(t) && !Number.isNaN(values[t])) add(t);
    } else {
      const step = (last - first) / STRETCHES;
      for (let s = 0; s < STRETCHES; s++) {
        let low = -1, high = -1;
        for (let t = Math.floor(first + s * step); t < Math.floor(first + (s + 1) * step); t++) {
          if (!keep(t) || Number.isNaN(values[t])) continue;
          if (low < 0 || values[t] < values[low]) low = t;
          if (high < 0 || values[t] > values[high]) high = t;
        }
        if (low >= 0) { add(Math.min(low, high)); if (low !== high) add(Math.max(low, high)); }
      }
    }
    return { x: xs, y: ys, at };
  };

  const lineOf = (x, values, near, first, last) => {
    const xs = [], ys = [];
    for (let t = first; t < last; t++) {
      if (near[t - first] && !Number.isNaN(values[t])) { xs.push(x[t]); ys.push(values[t]); }
      else if (xs.length && ys[ys.length - 1] !== null) { xs.push(x[t]); ys.push(null); }
    }
    return { x: xs, y: ys };
  };

  // Closed outlines, one for each stretch without a break, with null between them.
  const bandOf = (x, low, high, of, near, first, last) => {
    const xs = [], ys = [];
    let run = [];
    const close = () => {
      if (run.length) {
        for (const [time, , top] of run) { xs.push(time); ys.push(top); }
        for (const [time, bottom] of run.slice().reverse()) { xs.push(time); ys.push(bottom); }
        xs.push(run[0][0], run[0][0]); ys.push(run[0][2], null);
      }
      run = [];
    };
    if (last - first <= STEPS_DRAWN) {
      for (let t = first; t < last; t++) {
        if (near[t - first] && !Number.isNaN(low[t])) run.push([x[t], low[t], high[t]]); else close();
        if (run.length > 1 && near[t - first] && (of.state[t] & 3) === 1) { close(); if (near[t - first]) run.push([x[t], low[t], high[t]]); }
      }
    } else {
      const step = (last - first) / STRETCHES;
      for (let s = 0; s < STRETCHES; s++) {
        let bottom = Infinity, top = -Infinity;
        const from = Math.floor(first + s * step), to = Math.floor(first + (s + 1) * step);
        for (let t = from; t < to; t++) if ((of.state[t] & 3) === 2 && !Number.isNaN(low[t])) { bottom = Math.min(bottom, low[t]); top = Math.max(top, high[t]); }
        if (bottom <= top) run.push([x[from], bottom, top], [x[Math.max(from, to - 1)], bottom, top]); else close();
      }
    }
    close();
    return { x: xs, y: ys };
  };

  const shownNumber = (value) => (Number.isFinite(value) ? Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 }) : "–");
  const labelOf = (column, value) => {
    const place = column.levels ? column.levels.indexOf(value) : -1;
    return column.labels ? column.labels[Math.round(value)] ?? "–" : place >= 0 ? shownNumber(value) : shownNumber(value);
  };

  const hoverOf = (column, of, t) => {
    const value = column.labels ? short(labelOf(column, of.value[t]), 40) : shownNumber(of.value[t]);
    if (!Number.isNaN(of.certainty[t])) return `filled: ${value}<br>probability ${percent(of.certainty[t])}`;
    if (Number.isNaN(of.low[t])) return `filled: ${value}`;
    const span = (low, high) => (column.labels ? `${short(labelOf(column, low))} to ${short(labelOf(column, high))}` : `${shownNumber(low)} to ${shownNumber(high)}`);
    return `filled: ${value}<br>50&#37;: ${span(of.low50[t], of.high50[t])}<br>90&#37;: ${span(of.low[t], of.high[t])}`;
  };

  const tracesOf = (j, place, first, last) => {
    const of = view.series.columns[j], x = view.series.x, column = columns[j], near = besideGaps(of, first, last);
    const full = last - first <= STEPS_DRAWN, on = { xaxis: "x", yaxis: place ? `y${place + 1}` : "y" };
    const line = (name, points, look) => ({ type: "scatter", mode: "lines", name, ...points, line: look, hoverinfo: "skip", connectgaps: false, ...on });
    const traces = [];
    if (view.show.band && series.bands && !isUnordered(column)) {
      for (const [name, low, high, alpha] of [["90 % band", of.low, of.high, 0.17], ["50 % band", of.low50, of.high50, 0.33]])
        traces.push({ type: "scatter", mode: "lines", name, ...bandOf(x, low, high, of, near, first, last), fill: "toself", fillcolor: faded(colour("filled"), alpha), line: { width: 0 }, hoverinfo: "skip", ...on });
    }
    if (view.show.samples && full && !isUnordered(column)) of.samples.forEach((sample) => traces.push(line("sample", lineOf(x, sample, near, first, last), { color: faded(colour("sample"), 0.75), width: 0.8, dash: "dot" })));
    if (view.baseline && column.kind !== "text" && !column.labels) traces.push({ ...line("baseline", pointsOf(x, baselineOf(view.baseline, x, of, column), () => true, first, last), { color: colour("baseline"), width: 1.4, dash: "dash", shape: view.baseline === "linear" ? "linear" : "hv" }) });
    if (full && !isClass(column)) traces.push(line("filled line", lineOf(x, of.value, near, first, last), { color: colour("filled"), width: 1.5 }));
    const seen = pointsOf(x, of.value, (t) => (of.state[t] & 3) === 1, first, last);
    traces.push({ type: "scatter", mode: "markers", name: "observed", x: seen.x, y: seen.y, marker: { color: colour("observed"), size: full ? 4 : 3 }, customdata: seen.at.map((t) => (column.labels ? short(labelOf(column, of.value[t]), 40) : shownNumber(of.value[t]))), hovertemplate: "observed: %{customdata}<br>%{x}<extra></extra>", ...on });
    const filled = pointsOf(x, of.value, (t) => (of.state[t] & 3) === 2, first, last);
    traces.push({ type: "scatter", mode: "markers", name: "filled", x: filled.x, y: filled.y, marker: { color: colour("paper"), size: full ? 6 : 4, symbol: "circle", line: { color: colour("filled"), width: 1.6 } }, customdata: filled.at.map((t) => hoverOf(column, of, t)), hovertemplate: "%{customdata}<br>%{x}<extra></extra>", ...on });
    if (view.show.truth && series.truth) {
      const held = pointsOf(x, of.truth, () => true, first, last);
      traces.push({ type: "scatter", mode: "markers", name: "held-out truth", x: held.x, y: held.y, marker: { color: colour("truth"), size: 6, symbol: "x-thin", line: { color: colour("truth"), width: 1.8 } }, customdata: held.at.map((t) => (column.labels ? short(labelOf(column, of.truth[t]), 40) : shownNumber(of.truth[t]))), hovertemplate: "held-out truth: %{customdata}<br>%{x}<extra></extra>", ...on });
    }
    return traces;
  };

  // Of all that is in view but samples: one of them may lie far off.
  const rangeOf = (j, first, last) => {
    const of = view.series.columns[j], bands = view.show.band && series.bands && !isUnordered(columns[j]);
    let low = Infinity, high = -Infinity;
    for (const values of [of.value, ...(bands ? [of.low, of.high] : []), ...(view.show.truth ? [of.truth] : [])])
      for (let t = first; t < last; t++) if (!Number.isNaN(values[t])) { low = Math.min(low, values[t]); high = Math.max(high, values[t]); }
    if (low > high) return [0, 1];
    const margin = 0.06 * (high - low) || 0.5 * Math.abs(high) || 1;
    return [low - margin, high + margin];
  };

  const drawSeries = () => {
    if (!view.series) return Promise.resolve();
    const shown = [...view.columns].sort((a, b) => a - b), x = view.series.x, [first, last] = inView(x, view.range);
    const high = narrow() ? 140 : 165, height = 60 + Math.max(1, shown.length) * high, gap = 26 / height;
    const range = view.range || [x[0], x[x.length - 1]].map((end, i) => end + (i ? 1 : -1) * (x.length > 1 ? 0.012 * (x[x.length - 1] - x[0]) : isDate ? 43200000 : 1));
    const frame = layout({ height, margin: { l: narrow() ? 44 : 56, r: 10, t: 24, b: 36 }, dragmode: touch ? false : "zoom", annotations: [] });
    frame.xaxis = timeAxis({ range, anchor: shown.length > 1 ? `y${shown.length}` : "y" });
    const traces = shown.flatMap((j, place) => {
      const top = 1 - place / shown.length, bottom = 1 - (place + 1) / shown.length + (place + 1 < shown.length ? gap : 0), column = columns[j];
      const ticks = column.labels ? { tickmode: "array", tickvals: column.labels.map((_, i) => i), ticktext: column.labels.map((label) => short(label, narrow() ? 8 : 14)), range: [-0.5, column.labels.length - 0.5] } : {};
      frame[place ? `yaxis${place + 1}` : "yaxis"] = axis({ domain: [bottom, top], fixedrange: true, zeroline: false, nticks: 5, range: rangeOf(j, first, last), ...ticks });
      frame.annotations.push({ xref: "paper", yref: "paper", x: 0, y: top, xanchor: "left", yanchor: "bottom", showarrow: false, text: `<b>${short(column.name, narrow() ? 34 : 80)}</b>`, font: { size: 12, color: colour("ink") } });
      return tracesOf(j, place, first, last);
    });
    const inGaps = last - first > STEPS_DRAWN ? `Drawn are the extremes of ${STRETCHES} stretches of the ${whole(last - first)} steps in view; zoom in for every step${view.show.samples ? ", and for samples" : ""}.` : "";
    const part = view.range && x.length > 1 ? `Shown are ${whole(last - first)} of ${whole(x.length)} steps${view.found ? ", where most is missing" : ""}; “all” shows the whole series. ` : "";
    const hint = touch || x.length < 2 ? "" : "Drag over the plot to zoom into all columns. ";
    $("seen").textContent = shown.length ? part + hint + inGaps : "Choose a column.";
    return Plotly.react("plot", traces, frame, { ...config, doubleClick: false }).then((plot) => {
      if (!plot.listens) {
        plot.listens = true;
        plot.on("plotly_relayout", (change) => { if ("xaxis.range[0]" in change) setRange([asNumber(change["xaxis.range[0]"]), asNumber(change["xaxis.range[1]"])]); });
        plot.on("plotly_doubleclick", () => { setRange(null); return false; });
      }
    });
  };
  chart("plot", drawSeries);

  const setRange = (range) => {
    view.found = false;
    const x = view.series.x, least = x.length > 1 ? (x[x.length - 1] - x[0]) / x.length : 1;
    view.range = range && range[1] - range[0] > least ? range : range ? view.range : null;
    drawSeries();
  };

  const zoom = (how) => {
    if (!view.series || view.series.x.length < 2) return;
    const x = view.series.x, ends = [x[0], x[x.length - 1]], [a, b] = view.range || ends, size = b - a;
    if (how === "all") setRange(null);
    if (how === "in") setRange([a + size / 4, b - size / 4]);
    if (how === "out") setRange(size >= (ends[1] - ends[0]) * 0.5 ? null : [a - size / 2, b + size / 2]);
    if (how === "left") setRange([a - size / 2, b - size / 2]);
    if (how === "right") setRange([a + size / 2, b + size / 2]);
  };
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => zoom(button.dataset.zoom)));

  const choose = async (number) => {
    view.number = number;
    view.series = await chosenSeries(number);
    view.range = view.series && busiest(view.series);
    view.found = Boolean(view.range);
    const name = `${data.id ? `${data.id} ` : "series "}${series.ids[number]}`;
    const told = `${whole(series.lengths[number])} steps, ${percent(series.missing[number], 1)} missing`;
    $("chosen").textContent = series.ids.length > 1 ? `${name}: ${told}` : told;
    $("plot").setAttribute("aria-label", `${series.ids.length > 1 ? name : "The series"}: observed and filled values with their bands`);
    if (view.series) { if (drawn.has("plot")) await drawSeries(); }
    else { Plotly.purge("plot"); $("seen").textContent = `To keep this file small, it has the values of the first ${whole(series.kept)} series only.`; }
    for (const id of ["trajectories", "frames"]) if (charts.has(id) && drawn.has(id)) await charts.get(id)();
  };

  // A long series is first shown where most of it is missing: from afar, bands cannot be seen.
  const busiest = ({ x, steps, columns: found }) => {
    const size = narrow() ? 60 : 150;
    if (steps <= 2 * size) return null;
    const gaps = new Float64Array(steps + 1), sums = new Float64Array(steps + 1);
    for (const j of view.columns) found[j].state.forEach((state, t) => { gaps[t] += (state & 3) === 2; });
    for (let t = 0; t < steps; t++) sums[t + 1] = sums[t] + gaps[t];
    let best = 0;
    for (let t = 0; t + size < steps; t++) if (sums[t + size] - sums[t] > sums[best + size] - sums[best]) best = t;
    return [x[best], x[best + size]];
  };

  // The list of series: only the rows in sight exist.
  const ROW = 38;
  const list = { order: series.ids.map((_, i) => i), element: $("list"), all: document.createElement("div") };
  list.all.className = "all";
  list.element.append(list.all);
  const rowOf = (place) => {
    const number = list.order[place], row = document.createElement("div"), name = document.createElement("span"), told = document.createElement("span");
    row.className = "row"; row.style.top = `${place * ROW}px`; row.id = `row-${number}`;
    row.setAttribute("role", "option"); row.setAttribute("aria-selected", number === view.number);
    row.setAttribute("aria-posinset", place + 1); row.setAttribute("aria-setsize", list.order.length);
    name.className = "name"; name.textContent = series.ids[number]; name.title = series.ids[number];
    const unsure = series.uncertainty[number];
    told.className = "told"; told.textContent = $("sort").value === "uncertainty" ? `± ${unsure === null ? "–" : unsure.toFixed(2)}` : `${percent(series.missing[number])} missing`;
    row.append(name, told);
    row.addEventListener("click", () => pick(place));
    return row;
  };
  const drawList = () => {
    const first = Math.max(0, Math.floor(list.element.scrollTop / ROW) - 4), last = Math.min(list.order.length, first + Math.ceil(list.element.clientHeight / ROW) + 8);
    list.all.style.height = `${list.order.length * ROW}px`;
    list.all.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => rowOf(first + i)));
    list.element.setAttribute("aria-activedescendant", `row-${view.number}`);
  };
  const pick = (place) => {
    if (!list.order.length) return;
    const bounded = Math.max(0, Math.min(list.order.length - 1, place)), top = bounded * ROW, box = list.element;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    const changed = choose(list.order[bounded]);
    drawList();
    return changed;
  };
  const arrange = () => {
    const wanted = $("search").value.toLowerCase(), by = $("sort").value;
    list.order = series.ids.map((_, i) => i).filter((i) => series.ids[i].toLowerCase().includes(wanted));
    if (by !== "data") list.order.sort((a, b) => (series[by][b] ?? -1) - (series[by][a] ?? -1));
    list.element.scrollTop = 0;
    $("count").textContent = `${whole(list.order.length)} of ${whole(series.ids.length)} series`;
    drawList();
  };
  list.element.addEventListener("scroll", drawList, { passive: true });
  list.element.addEventListener("keydown", (event) => {
    const place = list.order.indexOf(view.number), page = Math.floor(list.element.clientHeight / ROW);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + page, PageUp: place - page, Home: 0, End: list.order.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); pick(to); }
  });
  $("search").addEventListener("input", arrange);
  $("sort").addEventListener("change", arrange);

  // Columns to show.
  const columnList = () => {
    const wanted = $("column-search").value.toLowerCase(), fitting = columns.map((_, j) => j).filter((j) => columns[j].name.toLowerCase().includes(wanted)).slice(0, 200);
    $("column-list").replaceChildren(...fitting.map((j) => {
      const label = document.createElement("label"), box = document.createElement("input"), name = document.createElement("span"), told = document.createElement("span");
      box.type = "checkbox"; box.checked = view.columns.has(j);
      name.textContent = columns[j].name; told.className = "told"; told.textContent = `${percent(columns[j].missing / data.steps)} missing`;
      box.addEventListener("change", () => { if (box.checked) view.columns.add(j); else view.columns.delete(j); countColumns(); drawSeries(); });
      label.append(box, name, told);
      return label;
    }));
  };
  const countColumns = () => { document.querySelector("#columns > summary").textContent = `Columns: ${view.columns.size} of ${columns.length}`; };
  $("column-search").addEventListener("input", columnList);
  document.addEventListener("click", (event) => { if (!$("columns").contains(event.target)) $("columns").open = false; });
  $("columns").addEventListener("keydown", (event) => { if (event.key === "Escape") { $("columns").open = false; document.querySelector("#columns > summary").focus(); } });

  // The key to the plot, which also switches things on and off.
  const KEYS = [
    ["", "observed", '<circle cx="13" cy="7" r="3" fill="var(--observed)"/>'],
    ["", "filled", '<path d="M1 7H25" stroke="var(--filled)" stroke-width="1.6"/><circle cx="13" cy="7" r="3.2" fill="var(--paper)" stroke="var(--filled)" stroke-width="1.6"/>'],
    ["band", "50 % and 90 % bands", '<rect x="1" y="1" width="24" height="12" fill="var(--filled)" opacity=".2"/><rect x="1" y="4" width="24" height="6" fill="var(--filled)" opacity=".4"/>'],
    ["samples", "samples", '<path d="M1 10L9 4L17 9L25 3" fill="none" stroke="var(--sample)" stroke-dasharray="2 2"/>'],
    ["truth", "held-out truth", '<path d="M9 3L17 11M17 3L9 11" stroke="var(--truth)" stroke-width="2"/>'],
  ];
  const offered = { band: series.bands, samples: series.samples > 0, truth: series.truth };
  for (const [what, text, picture] of KEYS) {
    if (what && !offered[what]) continue;
    const key = document.createElement(what ? "label" : "span");
    key.innerHTML = `${what ? '<input type="checkbox">' : ""}<svg viewBox="0 0 26 14" aria-hidden="true">${picture}</svg><span>${text}</span>`;
    if (what) { key.firstChild.checked = view.show[what]; key.firstChild.addEventListener("change", (event) => { view.show[what] = event.target.checked; drawSeries(); }); }
    $("keys").append(key);
  }
  $("baseline").addEventListener("change", (event) => { view.baseline = event.target.value; drawSeries(); });

  // --- latent space ------------------------------------------------------------------------------------------------

  if (latent) {
    chart("trajectories", async () => {
      const kept = view.number < latent.kept && series.packs.length, note = $("latent-note");
      const few = latent.kept < series.ids.length ? ` To keep this file small, latent series are here for the first ${whole(latent.kept)} of ${whole(series.ids.length)} series.` : "";
      if (!kept || !view.series) { Plotly.purge("trajectories"); $("trajectories").replaceChildren(); note.textContent = `Not kept for this series.${few}`; return; }
      const planes = new Planes(await unpacked(`latent-${view.number}`)), every = latent.every[view.number];
      const steps = Math.ceil(series.lengths[view.number] / every), x = view.series.x.filter((_, t) => t % every === 0);
      const [lowest, span, largest] = [0, 1, 2].map(() => planes.numbers(latent.dims, Float32Array));
      const mean = planes.numbers(latent.dims * steps, Uint16Array), std = planes.take(latent.dims * steps);
      const shown = latent.order.slice(0, Number($("latent-count").value)), height = 60 + 74 * shown.length;
      const frame = layout({ height, margin: { l: 64, r: 8, t: 8, b: 36 }, annotations: [] }), traces = [];
      frame.xaxis = timeAxis({ anchor: shown.length > 1 ? `y${shown.length}` : "y" });
      shown.forEach((k, place) => {
        const on = { xaxis: "x", yaxis: place ? `y${place + 1}` : "y" }, at = (t) => lowest[k] + (mean[k * steps + t] / series.levels) * span[k], reach = (t) => 1.645 * largest[k] * (std[k * steps + t] / 255);
        const order = x.map((_, t) => t), back = order.slice().reverse();
        traces.push({ type: "scatter", mode: "lines", x: [...order, ...back].map((t) => x[t]), y: [...order.map((t) => at(t) + reach(t)), ...back.map((t) => at(t) - reach(t))], fill: "toself", fillcolor: faded(colour("filled"), 0.22), line: { width: 0 }, hoverinfo: "skip", ...on });
        traces.push({ type: "scatter", mode: x.length > 1 ? "lines" : "markers", x, y: order.map(at), line: { color: colour("filled"), width: 1.4 }, hovertemplate: `latent ${k + 1}: %{y:.3g}<br>%{x}<extra></extra>`, ...on });
        const top = 1 - place / shown.length;
        frame[place ? `yaxis${place + 1}` : "yaxis"] = axis({ domain: [top - 1 / shown.length + 8 / height, top], nticks: 3, zeroline: false, fixedrange: true, title: title(`latent ${k + 1}`) });
      });
      const thin = every > 1 ? ` Every ${every}th step is shown.` : "";
      const scales = latent.in_steps.filter((scale) => scale !== null);
      const unit = scales.length && Math.max(...scales) > 0 ? ` Length scales: ${[...new Set(scales.map((scale) => shownNumber(scale)))].join(", ")} steps.` : "";
      note.textContent = `Of ${data.id ? data.id + " " : "series "}${series.ids[view.number]}; where little is observed, bands are wide.${unit}${thin}${few}`;
      await Plotly.react("trajectories", traces, frame, config);
    });
    $("latent-count").addEventListener("change", () => charts.get("trajectories")());

    chart("influence", () => {
      const { rows, columns: names, values } = latent.influence, height = Math.max(260, Math.min(720, 100 + 17 * rows.length));
      return Plotly.react("influence", [{
        type: "heatmap", z: values, zmin: 0, zmax: Math.max(1e-6, ...values.slice(0, -1).flat().map((value) => value ?? 0)), colorscale: sequential(), xgap: 1, ygap: 1,
        texttemplate: names.length <= 10 ? "%{z:.1g}" : "", textfont: { size: narrow() ? 9 : 11 }, customdata: values.map((row, i) => row.map((_, j) => `${plain(rows[i])} → ${plain(names[j])}`)), hovertemplate: "%{customdata}: %{z:.3g}<extra></extra>",
        colorbar: { thickness: 10, outlinewidth: 0, len: 0.9, title: { text: "moves by", side: "right" } },
      }], layout({ height, xaxis: axis({ ...named(names, 12), ...slanted(names), showgrid: false }), yaxis: axis({ ...someNames(rows, height - 70, 24), autorange: "reversed", showgrid: false }) }), config);
    });
  }

  // --- training ----------------------------------------------------------------------------------------------------

  if (training) chart("history", () => {
    const titles = { loss: "loss (the negative bound)", nll: "fit: −log likelihood", kl: "KL to the prior", validation: "error on held-out cells" };
    const names = Object.keys(training.parts).filter((name) => training.parts[name].some((value) => value !== null));
    const across = narrow() ? 1 : Math.min(2, names.length), down = Math.ceil(names.length / across), height = 40 + 210 * down;
    const frame = layout({ height, margin: { l: 56, r: 12, t: 26, b: 40 }, annotations: [] });
    const epochs = Array.from({ length: training.epochs }, (_, i) => i + 1), traces = [];
    names.forEach((name, i) => {
      const id = i ? i + 1 : "", values = training.parts[name], row = Math.floor(i / across), column = i % across;
      const top = 1 - row / down, bottom = 1 - (row + 1) / down + 62 / height, left = column / across + (column ? 0.05 : 0), right = (column + 1) / across - (column + 1 < across ? 0.02 : 0);
      const judged = name === "validation", known = epochs.filter((epoch) => values[epoch - 1] !== null);
      traces.push({ type: "scatter", mode: known.length < 60 ? "lines+markers" : "lines", x: known, y: known.map((epoch) => values[epoch - 1]), line: { color: judged ? colour("truth") : colour("filled"), width: 1.8, dash: judged ? "solid" : "solid" }, marker: { size: 4, symbol: judged ? "diamond" : "circle" }, xaxis: `x${id}`, yaxis: `y${id}`, hovertemplate: "epoch %{x}: %{y:.4g}<extra></extra>" });
      if (judged && known.length) {
        const best = known.reduce((a, b) => (values[b - 1] < values[a - 1] ? b : a));
        traces.push({ type: "scatter", mode: "markers", x: [best], y: [values[best - 1]], marker: { size: 13, symbol: "star", color: colour("truth"), line: { color: colour("ink"), width: 1 } }, xaxis: `x${id}`, yaxis: `y${id}`, hovertemplate: "best: epoch %{x}, %{y:.4g}<extra></extra>" });
      }
      frame[`xaxis${id}`] = axis({ domain: [left, right], anchor: `y${id}`, title: row + 1 === down || i + across >= names.length ? title("epoch") : undefined });
      frame[`yaxis${id}`] = axis({ domain: [bottom, top], anchor: `x${id}`, nticks: 5, zeroline: false, automargin: false });
      frame.annotations.push({ xref: "paper", yref: "paper", x: left, y: top, xanchor: "left", yanchor: "bottom", showarrow: false, text: `<b>${plain(titles[name] || name)}</b>`, font: { size: 12 } });
    });
    return Plotly.react("history", traces, frame, config);
  });

  // --- images ------------------------------------------------------------------------------------------------------

  if (images) chart("frames", () => {
    const [channels, height, width] = images.shape, box = $("frames"), most = 40;
    if (!view.series) { box.replaceChildren(); $("frames-note").textContent = "Not kept for this series."; return; }
    const shown = Math.min(view.series.steps, most), scale = Math.max(1, Math.round(56 / width)), gap = 1;
    const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const blue = [143, 184, 222], empty = rgb(colour("empty")), dark = rgb(colour("full")), cell = (c, p) => view.series.columns[c * height * width + p];
    const known = (of, t) => (of.state[t] & 3) === 1;
    const unsure = (of, t) => { if (known(of, t)) return 0; if (images.binary) return 2 * Math.sqrt(Math.max(0, of.value[t] * (1 - of.value[t]))); return Number.isNaN(of.low[t]) ? 0 : of.high[t] - of.low[t]; };
    let widest = 1e-9;
    if (!images.binary) for (const of of view.series.columns) for (let t = 0; t < shown; t++) widest = Math.max(widest, unsure(of, t)); else widest = 1;
    const rows = {
      truth: series.truth ? (of, t) => (known(of, t) ? of.value[t] : of.truth[t]) : null,
      input: (of, t) => (known(of, t) ? of.value[t] : NaN),
      filled: (of, t) => of.value[t],
    };
    const colourOf = (number) => { // a missing channel is blue; of three, the more the bluer
      const given = number.filter((value) => !Number.isNaN(value)), share = 1 - given.length / number.length, mean = given.length ? given.reduce((a, b) => a + b, 0) / given.length : 0;
      const full = channels === 3 ? number : [number[0], number[0], number[0]];
      return full.map((value, i) => (1 - share) * 255 * Math.min(1, Math.max(0, Number.isNaN(value) ? mean : value)) + share * blue[i]);
    };
    const drawRow = (name, pixel) => {
      const label = document.createElement("span"), canvas = document.createElement("canvas");
      label.textContent = name; canvas.width = shown * (width + gap) - gap; canvas.height = height;
      canvas.style.width = `${canvas.width * scale}px`; canvas.style.height = `${height * scale}px`;
      canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", `${name}, ${shown} frames`);
      const paint = canvas.getContext("2d"), picture = paint.createImageData(canvas.width, height);
      for (let t = 0; t < shown; t++) for (let p = 0; p < height * width; p++) {
        const at = 4 * (Math.floor(p / width) * canvas.width + t * (width + gap) + (p % width)), [r, g, b] = pixel(p, t);
        picture.data[at] = r; picture.data[at + 1] = g; picture.data[at + 2] = b; picture.data[at + 3] = 255;
      }
      paint.putImageData(picture, 0, 0);
      return [label, canvas];
    };
    const all = [];
    const each = Array.from({ length: channels }, (_, c) => c);
    for (const [name, value] of Object.entries(rows)) if (value) all.push(...drawRow(name, (p, t) => colourOf(each.map((c) => value(cell(c, p), t)))));
    all.push(...drawRow("uncertainty", (p, t) => { const share = Math.max(...each.map((c) => unsure(cell(c, p), t))) / widest; return empty.map((from, i) => from + share * (dark[i] - from)); }));
    box.replaceChildren(...all);
    $("frames-note").textContent = `${data.id ? data.id + " " : "Series "}${series.ids[view.number]}, ${shown < view.series.steps ? `the first ${shown} of ${view.series.steps}` : shown} frames.`;
  });

  // --- the page ----------------------------------------------------------------------------------------------------

  const themes = { auto: "light", light: "dark", dark: "auto" };
  const redraw = () => { for (const id of drawn) charts.get(id)(); };
  $("theme").addEventListener("click", () => {
    const next = themes[document.documentElement.dataset.theme || "auto"];
    if (next === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
    $("theme").textContent = `Colours: ${next}`;
    $("theme").setAttribute("aria-label", `Colours: ${next === "auto" ? "as the system has them" : next}. Press to change`);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("(max-width: 759px)").addEventListener("change", redraw);

  const links = new Map([...document.querySelectorAll(".top nav a")].map((link) => [link.hash.slice(1), link]));
  const mark = () => {
    const passed = [...links.keys()].filter((id) => $(id).getBoundingClientRect().top < innerHeight / 3);
    const here = innerHeight + scrollY >= document.documentElement.scrollHeight - 4 ? [...links.keys()].pop() : passed.pop() || [...links.keys()][0];
    for (const [id, link] of links) if (id === here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  };
  addEventListener("scroll", mark, { passive: true });
  mark();

  try {
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old (it needs DecompressionStream, from 2023)");
    arrange(); columnList(); countColumns();
    const script = document.createElement("script");
    script.nonce = nonce;
    script.textContent = new TextDecoder().decode(await unpacked("plotly"));
    document.head.append(script);
    await choose(0);
    const sight = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { sight.unobserve(entry.target); draw(entry.target.id); }
    }, { rootMargin: "400px" });
    for (const id of charts.keys()) sight.observe($(id));
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    $("trouble").hidden = false;
    $("trouble").textContent = `The charts cannot be shown: ${error.message}`;
    throw error;
  }
})();
