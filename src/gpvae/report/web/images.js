"use strict";
// Frames of a series of images: truth, input, filled values, uncertainty.

const pixelSize = () => Math.max(1, Math.round(56 / images.shape[2]));
const framesHeight = () => (series.truth ? 4 : 3) * (Math.max(22, images.shape[1] * pixelSize()) + 6);
if (images)
  chart("frames", framesHeight, () => {
    const [channels, height, width] = images.shape,
      box = $("frames"),
      most = 40;
    if (!view.series) {
      box.replaceChildren();
      $("frames-note").textContent = "Not included for this series.";
      return;
    }
    const shown = Math.min(view.series.steps, most),
      scale = pixelSize(),
      gap = 1;
    const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const blue = [143, 184, 222],
      empty = rgb(colour("empty")),
      dark = rgb(colour("full")),
      cell = (c, p) => view.series.columns[c * height * width + p];
    const known = (of, t) => (of.state[t] & 3) === 1;
    const uncertainty = (of, t) => {
      if (known(of, t)) return 0;
      if (images.binary) return 2 * Math.sqrt(Math.max(0, of.value[t] * (1 - of.value[t])));
      return Number.isNaN(of.low[t]) ? 0 : of.high[t] - of.low[t];
    };
    let widest = 1e-9;
    if (!images.binary)
      for (const of of view.series.columns) for (let t = 0; t < shown; t++) widest = Math.max(widest, uncertainty(of, t));
    else widest = 1;
    const rows = {
      truth: series.truth ? (of, t) => (known(of, t) ? of.value[t] : of.truth[t]) : null,
      input: (of, t) => (known(of, t) ? of.value[t] : NaN),
      filled: (of, t) => of.value[t],
    };
    const colourOf = (number) => {
      // a missing channel is blue; the more channels are missing, the bluer
      const given = number.filter((value) => !Number.isNaN(value)),
        share = 1 - given.length / number.length,
        mean = given.length ? given.reduce((a, b) => a + b, 0) / given.length : 0;
      const full = channels === 3 ? number : [number[0], number[0], number[0]];
      return full.map(
        (value, i) =>
          (1 - share) * 255 * Math.min(1, Math.max(0, Number.isNaN(value) ? mean : value)) + share * blue[i],
      );
    };
    const drawRow = (name, pixel) => {
      const label = document.createElement("span"),
        canvas = document.createElement("canvas");
      label.textContent = name;
      canvas.width = shown * (width + gap) - gap;
      canvas.height = height;
      canvas.style.width = `${canvas.width * scale}px`;
      canvas.style.height = `${height * scale}px`;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${name}, ${shown} frames`);
      const paint = canvas.getContext("2d"),
        picture = paint.createImageData(canvas.width, height);
      for (let t = 0; t < shown; t++)
        for (let p = 0; p < height * width; p++) {
          const at = 4 * (Math.floor(p / width) * canvas.width + t * (width + gap) + (p % width)),
            [r, g, b] = pixel(p, t);
          picture.data[at] = r;
          picture.data[at + 1] = g;
          picture.data[at + 2] = b;
          picture.data[at + 3] = 255;
        }
      paint.putImageData(picture, 0, 0);
      return [label, canvas];
    };
    const all = [];
    const each = Array.from({ length: channels }, (_, c) => c);
    for (const [name, value] of Object.entries(rows))
      if (value) all.push(...drawRow(name, (p, t) => colourOf(each.map((c) => value(cell(c, p), t)))));
    all.push(
      ...drawRow("uncertainty", (p, t) => {
        const share = Math.max(...each.map((c) => uncertainty(cell(c, p), t))) / widest;
        return empty.map((from, i) => from + share * (dark[i] - from));
      }),
    );
    box.replaceChildren(...all);
    $("frames-note").textContent =
      `${data.id ? data.id + " " : "Series "}${series.ids[view.number]}, ${shown < view.series.steps ? `the first ${shown} of ${view.series.steps}` : shown} frames.`;
  });
