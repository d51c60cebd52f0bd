"use strict";
// The latent series, which columns they drive, and the course of training.

const shownLatents = () => latent.order.slice(0, Number($("latent-count")?.value ?? 6));
const latentHeight = () => (view.latent ? 60 + 74 * shownLatents().length : 80);
const latentNote = () => {
  const few =
    latent.kept < series.ids.length
      ? ` Latent series are included for the first ${whole(latent.kept)} of ${whole(series.ids.length)} series, to keep the file small.`
      : "";
  if (!view.latent) return `Not included for this series.${few}`;
  const every = latent.strides[view.number],
    thin = every > 1 ? ` One step in ${every} is shown.` : "",
    words = latent.words.length ? shownLatents().map((k) => ` Latent ${k + 1}: ${latent.words[k]}.`) : [],
    note = latent.note ? ` ${latent.note}` : words.join("");
  return `${data.id ? data.id + " " : "Series "}${series.ids[view.number]}. The bands, often too narrow to be seen, contain 90 % of the posterior.${note}${thin}${few}`;
};
const chooseLatent = async (number) => {
  if (!latent.dims) return;
  view.latent = view.series && number < latent.kept ? await unpacked(`latent-${number}`) : null;
  $("latent-note").textContent = latentNote();
};
const influenceHeight = () => Math.max(260, Math.min(720, 100 + 17 * latent.influence.rows.length));
// Columns whose response to the latent series is known, or those for which it is not.
const moved = (known) =>
  latent.influence.columns
    .map((_, j) => j)
    .filter((j) => latent.influence.values.some((row) => row[j] !== null) === known);
if (latent) {
  const constant = moved(false).map((j) => latent.influence.columns[j]);
  if (constant.length)
    $("influence").nextElementSibling.append(` Not shown: ${constant.join(", ")}, whose values do not vary.`);
  chart("trajectories", latentHeight, (height) => {
    if (!view.latent) {
      Plotly.purge("trajectories");
      $("trajectories").replaceChildren();
      return;
    }
    const planes = new Planes(view.latent),
      every = latent.strides[view.number];
    const steps = Math.ceil(series.lengths[view.number] / every),
      x = view.series.x.filter((_, t) => t % every === 0);
    const [lowest, span, largest] = [0, 1, 2].map(() => planes.numbers(latent.dims, Float32Array));
    const mean = planes.numbers(latent.dims * steps, Uint16Array),
      std = planes.take(latent.dims * steps);
    const shown = shownLatents();
    const frame = layout({ height, margin: { l: 64, r: 8, t: 8, b: 36 }, annotations: [] }),
      traces = [];
    frame.xaxis = timeAxis({ anchor: shown.length > 1 ? `y${shown.length}` : "y" });
    shown.forEach((k, place) => {
      const on = { xaxis: "x", yaxis: place ? `y${place + 1}` : "y" },
        at = (t) => lowest[k] + (mean[k * steps + t] / series.levels) * span[k],
        reach = (t) => 1.645 * largest[k] * (std[k * steps + t] / 255);
      const order = x.map((_, t) => t),
        back = order.slice().reverse();
      traces.push({
        type: "scatter",
        mode: "lines",
        x: [...order, ...back].map((t) => x[t]),
        y: [...order.map((t) => at(t) + reach(t)), ...back.map((t) => at(t) - reach(t))],
        fill: "toself",
        fillcolor: faded(colour("filled"), 0.22),
        line: { width: 0 },
        hoverinfo: "skip",
        ...on,
      });
      traces.push({
        type: "scatter",
        mode: x.length > 1 ? "lines" : "markers",
        x,
        y: order.map(at),
        line: { color: colour("filled"), width: 1.4 },
        hovertemplate: `${plain(latent.names[k])}: %{y:.3g}<br>%{x}<extra></extra>`,
        ...on,
      });
      const top = 1 - place / shown.length;
      frame[place ? `yaxis${place + 1}` : "yaxis"] = axis({
        domain: [top - 1 / shown.length + 8 / height, top],
        nticks: 3,
        zeroline: false,
        fixedrange: true,
        title: title(plain(latent.names[k]).replace(", ", "<br>")),
      });
    });
    return Plotly.react("trajectories", traces, frame, config);
  });
  $("latent-count")?.addEventListener("change", () => {
    $("latent-note").textContent = latentNote();
    charts.get("trajectories")();
  });

  chart("influence", influenceHeight, (height) => {
    const { rows, measure, coloured } = latent.influence,
      format = measure === "share" ? ".0%" : ".2f",
      some = moved(true),
      names = some.map((j) => latent.influence.columns[j]),
      values = latent.influence.values.map((row) => some.map((j) => row[j]));
    return Plotly.react(
      "influence",
      [
        {
          type: "heatmap",
          z: values,
          zmin: 0,
          zmax: Math.max(
            1e-6,
            ...values
              .slice(0, coloured) // without the nearest visible values, whose influence is much larger
              .flat()
              .map((value) => value ?? 0),
          ),
          colorscale: sequential(),
          xgap: 1,
          ygap: 1,
          texttemplate: names.length <= 10 && !narrow() ? `%{z:${format}}` : "",
          textfont: { size: 11 },
          customdata: values.map((row, i) => row.map((_, j) => `${plain(rows[i])} → ${plain(names[j])}`)),
          hovertemplate: `%{customdata}: %{z:${measure === "share" ? ".1%" : ".3g"}}<extra></extra>`,
          colorbar: {
            thickness: 10,
            outlinewidth: 0,
            len: 0.9,
            exponentformat: "none",
            tickformat: measure === "share" ? ".0%" : "",
            title: { text: measure === "share" ? "share of the variance" : "change", side: "right" },
          },
        },
      ],
      layout({
        height,
        xaxis: axis({ ...named(names, 12), ...slanted(names), showgrid: false }),
        yaxis: axis({ ...someNames(rows, height - 70, 24), autorange: "reversed", showgrid: false }),
      }),
      config,
    );
  });
}

const lossNames = () =>
  Object.keys(training.losses).filter((name) => training.losses[name].some((value) => value !== null));
const lossColumns = () => (narrow() ? 1 : Math.min(2, lossNames().length));
const lossRows = () => Math.ceil(lossNames().length / lossColumns());
const historyHeight = () => 40 + 210 * lossRows();
if (training)
  chart("history", historyHeight, (height) => {
    const titles = {
      loss: "loss (the negative bound)",
      nll: "fit: −log likelihood",
      kl: "KL to the prior",
      validation: `${training.score} at held-out cells`,
    };
    const names = lossNames(),
      across = lossColumns(),
      down = lossRows();
    const frame = layout({ height, margin: { l: 56, r: 12, t: 26, b: 40 }, annotations: [] });
    const epochs = Array.from({ length: training.epochs }, (_, i) => i + 1),
      traces = [];
    names.forEach((name, i) => {
      const id = i ? i + 1 : "",
        values = training.losses[name],
        row = Math.floor(i / across),
        column = i % across;
      const top = 1 - row / down,
        bottom = 1 - (row + 1) / down + 62 / height,
        left = column / across + (column ? 0.05 : 0),
        right = (column + 1) / across - (column + 1 < across ? 0.02 : 0);
      const isValidation = name === "validation",
        known = epochs.filter((epoch) => values[epoch - 1] !== null);
      traces.push({
        type: "scatter",
        mode: known.length < 60 ? "lines+markers" : "lines",
        x: known,
        y: known.map((epoch) => values[epoch - 1]),
        line: { color: isValidation ? colour("truth") : colour("filled"), width: 1.8 },
        marker: { size: 4, symbol: isValidation ? "diamond" : "circle" },
        xaxis: `x${id}`,
        yaxis: `y${id}`,
        hovertemplate: "epoch %{x}: %{y:.4g}<extra></extra>",
      });
      if (isValidation && known.length) {
        const best = known.reduce((a, b) => (values[b - 1] < values[a - 1] ? b : a));
        traces.push({
          type: "scatter",
          mode: "markers",
          x: [best],
          y: [values[best - 1]],
          marker: { size: 13, symbol: "star", color: colour("truth"), line: { color: colour("ink"), width: 1 } },
          xaxis: `x${id}`,
          yaxis: `y${id}`,
          hovertemplate: "lowest: epoch %{x}, %{y:.4g}<extra></extra>",
        });
      }
      frame[`xaxis${id}`] = axis({
        domain: [left, right],
        anchor: `y${id}`,
        ...wholeTicks(training.epochs),
        title: row + 1 === down || i + across >= names.length ? title("epoch") : undefined,
      });
      frame[`yaxis${id}`] = axis({
        domain: [bottom, top],
        anchor: `x${id}`,
        nticks: 5,
        zeroline: false,
        automargin: false,
      });
      frame.annotations.push({
        xref: "paper",
        yref: "paper",
        x: left,
        y: top,
        xanchor: "left",
        yanchor: "bottom",
        showarrow: false,
        text: `<b>${plain(titles[name] || name)}</b>`,
        font: { size: 12 },
      });
    });
    return Plotly.react("history", traces, frame, config);
  });
