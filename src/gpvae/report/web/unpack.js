"use strict";
// The data in the page: a summary as JSON, and the values of series, unpacked when one is chosen (see packing.py).

const nonce = document.currentScript.nonce;
const $ = (id) => document.getElementById(id);
const report = JSON.parse($("data").textContent);
const { data, columns, series, trust, missing, latent, training, images } = report;

const unpacked = async (id) => {
  const text = atob($(id).textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

class Planes {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  take(count) {
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }
  numbers(count, Kind) {
    // byte by byte: all first bytes, all second bytes, …
    const size = Kind.BYTES_PER_ELEMENT,
      from = this.take(count * size),
      whole = new Uint8Array(count * size);
    for (let b = 0; b < size; b++) for (let i = 0; i < count; i++) whole[i * size + b] = from[b * count + i];
    return new Kind(whole.buffer);
  }
}

const count = (state, test) => state.reduce((n, each) => n + (test(each) ? 1 : 0), 0);

const stepsKept = (steps) => Math.min(steps, series.max_steps); // of a series, in the page

const readPack = async (number) => {
  const { first, last } = series.packs[number],
    planes = new Planes(await unpacked(`pack-${number}`));
  const lengths = series.lengths.slice(first, last).map(stepsKept),
    rows = lengths.reduce((a, b) => a + b, 0);
  const cells = rows * columns.length,
    groups = (last - first) * columns.length;
  const times = planes.numbers(rows, Float64Array),
    state = planes.take(cells);
  const filled = count(state, (s) => (s & 3) === 2);
  const observed = planes.numbers(
    count(state, (s) => (s & 3) === 1),
    Float32Array,
  );
  const truth = series.truth
    ? planes.numbers(
        count(state, (s) => s & 4),
        Float32Array,
      )
    : null;
  const scale = planes.take(columns.length);
  const [lowest, span, widest] = [0, 1, 2].map(() => planes.numbers(groups, Float32Array));
  const mean = planes.numbers(filled, Uint16Array);
  const [width, place, lower, upper] = series.bands ? [0, 1, 2, 3].map(() => planes.take(filled)) : [];
  const samples = series.bands ? Array.from({ length: series.samples }, () => planes.take(filled)) : [];
  const certainty = series.certainty ? planes.take(filled) : null;
  return {
    first,
    lengths,
    times,
    state,
    observed,
    truth,
    scale,
    lowest,
    span,
    widest,
    mean,
    width,
    place,
    lower,
    upper,
    samples,
    certainty,
  };
};

const isClass = (column) => ["binary", "categorical", "ordinal"].includes(column.kind);
const isUnordered = (column) => ["binary", "categorical"].includes(column.kind);

const snapped = (column, value) => {
  if (column.kind === "count") return Math.round(value);
  if (!isClass(column) || !column.levels) return value;
  return column.levels.reduce((best, level) => (Math.abs(level - value) < Math.abs(best - value) ? level : best));
};

// One series of a pack: for each column arrays over its steps, NaN where there is no value.
const seriesOf = (pack, number) => {
  const local = number - pack.first,
    before = pack.lengths.slice(0, local).reduce((a, b) => a + b, 0);
  const steps = pack.lengths[local],
    from = before * columns.length;
  let seen = count(pack.state.subarray(0, from), (s) => (s & 3) === 1);
  let full = count(pack.state.subarray(0, from), (s) => (s & 3) === 2);
  let held = count(pack.state.subarray(0, from), (s) => s & 4);
  const x = Array.from(pack.times.subarray(before, before + steps), shownTime);
  const perColumn = columns.map((column, j) => {
    const none = () => new Float64Array(steps).fill(NaN);
    const of = {
      state: pack.state.subarray(from + j * steps, from + (j + 1) * steps),
      value: none(),
      truth: none(),
      low: none(),
      high: none(),
      low50: none(),
      high50: none(),
      certainty: none(),
      step: none(), // resolution of filled values, and of the ends of their bands
      bandStep: none(),
      isLog: pack.scale[j] & 1, // then the resolution of bands is that of the logarithm
      samples: pack.samples.map(none),
    };
    const group = local * columns.length + j,
      isLog = pack.scale[j] & 1,
      levels = pack.scale[j] & 2 ? 65535 : series.levels,
      floor = pack.scale[j] & 4 ? 0 : -Infinity,
      shown = (value) => Math.max(floor, snapped(column, isLog ? Math.exp(value) : value));
    for (let t = 0; t < steps; t++) {
      const state = of.state[t];
      if (state & 4) of.truth[t] = pack.truth[held++];
      if ((state & 3) === 1) {
        const value = pack.observed[seen++];
        for (const each of [of.value, of.low, of.high, of.low50, of.high50, ...of.samples]) each[t] = value;
      } else if ((state & 3) === 2) {
        const i = full++;
        const value = pack.lowest[group] + (pack.mean[i] / levels) * pack.span[group];
        of.value[t] = shown(value);
        of.step[t] = (pack.span[group] / levels) * (isLog ? of.value[t] : 1);
        if (pack.width && pack.width[i] < 255) {
          const width = pack.width[i] < 254 ? pack.widest[group] * Math.exp(-pack.width[i] / 32) : 0,
            low = value - (pack.place[i] / 32 - 2) * width;
          of.low[t] = shown(low);
          of.high[t] = shown(low + width);
          of.low50[t] = shown(low + (pack.lower[i] / 32) * width);
          of.high50[t] = shown(low + (pack.upper[i] / 32) * width);
          of.bandStep[t] = width / 32;
          of.samples.forEach((each, k) => {
            each[t] = shown(low + (pack.samples[k][i] / 16 - 7.5) * width);
          });
        }
        if (pack.certainty && isClass(column)) of.certainty[t] = pack.certainty[i] / 255;
      }
    }
    return of;
  });
  return { x, steps, columns: perColumn };
};

let lastPack = { number: -1, pack: null };
const chosenSeries = async (number) => {
  const place = series.packs.findIndex(({ first, last }) => first <= number && number < last);
  if (place < 0) return null;
  const read = lastPack.number === place ? lastPack : { number: place, pack: await readPack(place) };
  lastPack = read;
  return seriesOf(read.pack, number);
};

const isDate = data.clock === "datetime" && data.origin !== null;
const shownTime = (time) => (isDate ? (data.origin + time) * 1000 : time);
const asNumber = (end) =>
  typeof end === "string" ? Date.parse(end.replace(" ", "T") + (end.length > 10 ? "Z" : "")) : end;
