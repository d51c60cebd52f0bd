"use strict";
// The pattern of missing values.

const mapHeight = () => rowsHigh(missing.columns.length);

chart("map-time", mapHeight, (height) => {
  const { times, shares } = missing.over_time;
  const x = times.map(shownTime);
  return Plotly.react(
    "map-time",
    [
      {
        type: "heatmap",
        x: x.length > 1 ? x : undefined,
        z: shares,
        zmin: 0,
        zmax: 1,
        colorscale: sequential(),
        xgap: 0,
        ygap: 1,
        customdata: shares.map((row, i) => row.map(() => plain(missing.columns[i]))),
        hovertemplate: "%{customdata}<br>%{x}<br>%{z:.0%} missing<extra></extra>",
        colorbar: { thickness: 10, tickformat: ".0%", tickvals: [0, 0.5, 1], outlinewidth: 0, len: 0.9 },
      },
    ],
    layout({
      height,
      xaxis: timeAxis({ showgrid: false }),
      yaxis: axis({ ...someNames(missing.columns, height - 60), autorange: "reversed", showgrid: false }),
    }),
    config,
  );
});

chart("map-series", mapHeight, (height) => {
  const shares = missing.over_series.shares;
  const z = missing.columns.map((_, j) => shares.map((row) => row[j]));
  const { series: count, groups, names } = missing.over_series,
    every = count / groups;
  const x = shares.map((_, i) => Math.round((i + 0.5) * every + 0.5)),
    ticks = names ? { ...named(names, 12), ...slanted(names), tickvals: x } : wholeTicks(count);
  return Plotly.react(
    "map-series",
    [
      {
        type: "heatmap",
        x,
        z,
        zmin: 0,
        zmax: 1,
        colorscale: sequential(),
        ygap: 1,
        customdata: z.map((row, i) => row.map(() => plain(missing.columns[i]))),
        hovertemplate: "%{customdata}<br>%{z:.0%} missing<extra></extra>",
        colorbar: { thickness: 10, tickformat: ".0%", tickvals: [0, 0.5, 1], outlinewidth: 0, len: 0.9 },
      },
    ],
    layout({
      height,
      xaxis: axis({ title: title("series, from the fewest to the most gaps"), ...ticks, showgrid: false }),
      yaxis: axis({ ...someNames(missing.columns, height - 60), autorange: "reversed", showgrid: false }),
    }),
    config,
  );
});

chart("map-pixels", fixed(300), (height) =>
  Plotly.react(
    "map-pixels",
    [
      {
        type: "heatmap",
        z: missing.pixels,
        zmin: 0,
        zmax: 1,
        colorscale: sequential(),
        hovertemplate: "row %{y}, column %{x}: %{z:.0%} missing<extra></extra>",
        colorbar: { thickness: 10, tickformat: ".0%", outlinewidth: 0 },
      },
    ],
    layout({
      height,
      xaxis: axis({ constrain: "domain", showgrid: false }),
      yaxis: axis({ autorange: "reversed", scaleanchor: "x", showgrid: false }),
    }),
    config,
  ),
);

chart("gap-lengths", fixed(260), (height) => {
  const groups = missing.gaps.groups;
  return Plotly.react(
    "gap-lengths",
    [
      {
        type: "bar",
        x: groups.map((_, i) => i),
        y: groups.map((each) => each.gaps),
        marker: { color: colour("filled") },
        customdata: groups.map((each) => whole(each.values)),
        hovertemplate: "%{y:,} gaps with %{customdata} missing values<extra></extra>",
      },
    ],
    layout({
      height,
      xaxis: axis({ title: title("length in steps"), ...named(groups.map((each) => each.name)) }),
      yaxis: axis({ title: title("gaps"), rangemode: "tozero" }),
    }),
    config,
  );
});

const togetherHeight = () => rowsHigh(missing.together.columns.length, 240);
chart("together", togetherHeight, (height) => {
  const { columns: names, correlation, conditional } = missing.together;
  return Plotly.react(
    "together",
    [
      {
        type: "heatmap",
        z: correlation,
        zmin: -1,
        zmax: 1,
        xgap: 1,
        ygap: 1,
        colorscale: [
          [0, colour("truth")],
          [0.5, colour("empty")],
          [1, colour("full")],
        ],
        texttemplate: names.length <= 10 && !narrow() ? "%{z:.1f}" : "",
        customdata: conditional.map((row, i) =>
          row.map(
            (share, j) =>
              `where ${plain(names[i])} is missing,<br>${plain(names[j])} is also missing in ${percent(share)} of the steps`,
          ),
        ),
        hovertemplate: "%{customdata}<br>correlation %{z:.2f}<extra></extra>",
        colorbar: { thickness: 10, tickvals: [-1, 0, 1], outlinewidth: 0, len: 0.9 },
      },
    ],
    layout({
      height,
      xaxis: axis({ ...named(names, 12), ...slanted(names), showgrid: false }),
      yaxis: axis({ ...someNames(names, height - 70), autorange: "reversed", showgrid: false }),
    }),
    config,
  );
});
