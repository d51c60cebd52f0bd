"use strict";
// How reliable the filled values are.

// A share with its interval for each group, beside the nominal 90 %.
const shares = (id, height, each, xTitle, horizontal) => {
  const value = each.map((one) => one.share),
    places = each.map((_, i) => i);
  const bars = {
    type: "data",
    symmetric: false,
    array: each.map((one) => one.high - one.share),
    arrayminus: each.map((one) => one.share - one.low),
    color: colour("filled"),
    thickness: 1.5,
  };
  const lowest = Math.max(0, Math.min(0.8, ...each.map((one) => one.low)) - 0.05);
  const nominal = {
    type: "line",
    line: { color: colour("truth"), width: 2, dash: "dash" },
    ...(horizontal
      ? { x0: 0.9, x1: 0.9, yref: "paper", y0: 0, y1: 1 }
      : { y0: 0.9, y1: 0.9, xref: "paper", x0: 0, x1: 1 }),
  };
  const scale = axis({
    tickformat: ".0%",
    range: [lowest, 1.01],
    title: horizontal ? title("inside the 90 % interval") : title("inside"),
  });
  const names = axis({
    ...named(
      each.map((one) => one.name),
      horizontal ? 22 : 16,
    ),
    showgrid: false,
    title: title(xTitle),
  });
  return Plotly.react(
    id,
    [
      {
        type: "scatter",
        mode: "markers",
        x: horizontal ? value : places,
        y: horizontal ? places : value,
        [horizontal ? "error_x" : "error_y"]: bars,
        marker: { color: colour("filled"), size: 9, symbol: "diamond" },
        customdata: each.map((one) => `${percent(one.share, 1)} of ${whole(one.cells)} cells`),
        hovertemplate: "%{customdata}<extra></extra>",
      },
    ],
    layout({
      height,
      shapes: [nominal],
      xaxis: horizontal ? scale : names,
      yaxis: horizontal ? { ...names, autorange: "reversed" } : scale,
    }),
    config,
  );
};
if (trust.by_column)
  chart("by-column", fixed(Math.max(180, 80 + 22 * trust.by_column.columns.length)), (height) =>
    shares("by-column", height, trust.by_column.columns, "", true),
  );
if (trust.by_distance)
  chart("by-distance", fixed(290), (height) =>
    shares("by-distance", height, trust.by_distance.groups, "steps to the nearest observation of the column", false),
  );

if (trust.calibration)
  chart("calibration", fixed(330), (height) => {
    const points = trust.calibration.points,
      level = points.map((point) => point.level);
    return Plotly.react(
      "calibration",
      [
        {
          type: "scatter",
          mode: "lines",
          x: [0, 1],
          y: [0, 1],
          line: { color: colour("truth"), dash: "dash", width: 2 },
          hoverinfo: "skip",
        },
        {
          type: "scatter",
          mode: "lines+markers",
          x: level,
          y: points.map((point) => point.share),
          line: { color: colour("filled"), width: 2 },
          marker: { size: 8, symbol: "diamond", color: colour("filled") },
          error_y: {
            type: "data",
            symmetric: false,
            array: points.map((p) => p.high - p.share),
            arrayminus: points.map((p) => p.share - p.low),
            color: colour("filled"),
            thickness: 1.2,
          },
          hovertemplate: "%{x:.0%} intervals contain %{y:.1%}<extra></extra>",
        },
      ],
      layout({
        height,
        xaxis: axis({ title: title("level of the interval"), tickformat: ".0%", range: [0, 1] }),
        yaxis: axis({ title: title("share inside"), tickformat: ".0%", range: [0, 1] }),
        annotations: [
          {
            x: 0.03,
            y: 0.97,
            xanchor: "left",
            showarrow: false,
            text: "above the line: intervals too wide",
            font: { color: colour("quiet"), size: 11 },
          },
          {
            x: 0.97,
            y: 0.03,
            xanchor: "right",
            showarrow: false,
            text: "below the line: intervals too narrow",
            font: { color: colour("quiet"), size: 11 },
          },
        ],
      }),
      config,
    );
  });

if (trust.errors)
  chart("errors", fixed(Math.max(200, 90 + 38 * trust.errors.methods.length)), (height) => {
    const each = trust.errors.methods;
    return Plotly.react(
      "errors",
      [
        {
          type: "bar",
          orientation: "h",
          y: each.map((_, i) => i),
          x: each.map((one) => one.error),
          marker: {
            color: each.map((one) => (one.main ? colour("filled") : colour("line"))),
            line: { color: colour("quiet"), width: 1 },
            pattern: {
              shape: each.map((one) => (one.main ? "" : "/")),
              fgcolor: colour("quiet"),
              size: 6,
              solidity: 0.15,
            },
          },
          error_x: {
            type: "data",
            symmetric: false,
            array: each.map((one) => (one.high === null ? 0 : one.high - one.error)),
            arrayminus: each.map((one) => (one.low === null ? 0 : one.error - one.low)),
            visible: each.some((one) => one.high !== null),
            color: colour("ink"),
            thickness: 1.5,
          },
          hovertemplate: "%{x:.3f}<extra></extra>",
        },
      ],
      layout({
        height,
        xaxis: axis({ title: title("mean absolute error (standard deviations)"), rangemode: "tozero" }),
        yaxis: axis({ ...named(each.map((one) => one.name)), autorange: "reversed", showgrid: false }),
      }),
      config,
    );
  });

if (trust.pit)
  chart("pit", fixed(290), (height) => {
    const bins = trust.pit.shares,
      spread = 1.96 * Math.sqrt(0.09 / trust.pit.cells);
    return Plotly.react(
      "pit",
      [
        {
          type: "bar",
          x: bins.map((_, i) => (i + 0.5) / 10),
          width: bins.map(() => 0.094),
          y: bins,
          marker: { color: colour("filled") },
          hovertemplate: "%{y:.1%} of the cells<extra></extra>",
        },
      ],
      layout({
        height,
        xaxis: axis({
          title: title("share of the draws below the true value"),
          tickformat: ".0%",
          range: [0, 1],
          showgrid: false,
        }),
        yaxis: axis({ title: title("cells"), tickformat: ".0%", rangemode: "tozero" }),
        shapes: [
          {
            type: "rect",
            xref: "paper",
            x0: 0,
            x1: 1,
            y0: 0.1 - spread,
            y1: 0.1 + spread,
            fillcolor: faded(colour("truth"), 0.18),
            line: { width: 0 },
            layer: "above",
          },
          {
            type: "line",
            xref: "paper",
            x0: 0,
            x1: 1,
            y0: 0.1,
            y1: 0.1,
            line: { color: colour("truth"), width: 2, dash: "dash" },
          },
        ],
      }),
      config,
    );
  });
