"use strict";
// The choice of series, columns and layers.

const choose = async (number) => {
  view.number = number;
  const chosen = await chosenSeries(number);
  if (view.number !== number) return; // another series was chosen meanwhile
  view.series = chosen;
  view.range = view.series && mostGaps(view.series);
  view.zoomed = Boolean(view.range);
  if (latent) await chooseLatent(number);
  if (view.number !== number) return;
  const name = `${data.id ? `${data.id} ` : "series "}${series.ids[number]}`;
  const steps = series.lengths[number],
    cut = stepsKept(steps) < steps ? ` (only the first ${whole(stepsKept(steps))} are included, to keep the file small)` : "",
    hidden = series.hidden[number] ? `, ${percent(series.hidden[number], 1)} hidden for the test` : "";
  const detail = `${whole(steps)} steps${cut}, ${percent(series.missing[number], 1)} missing${hidden}`;
  $("chosen").textContent = series.ids.length > 1 ? `${name}: ${detail}` : detail;
  $("plot").setAttribute(
    "aria-label",
    `${series.ids.length > 1 ? name : "The series"}: observed and filled values with their bands`,
  );
  if (view.series) {
    describeView();
    if (drawn.has("plot")) await drawSeries();
  } else {
    Plotly.purge("plot");
    $("seen").textContent =
      `Only the first ${whole(series.kept)} series are included, to keep the file small.`;
  }
  for (const id of ["trajectories", "frames"]) if (charts.has(id) && drawn.has(id)) await charts.get(id)();
};

// The list of series; only visible rows exist.
const ROW = 38;
const list = { order: series.ids.map((_, i) => i), element: $("list"), all: document.createElement("div") };
list.all.className = "all";
list.all.setAttribute("role", "presentation");
list.element.append(list.all);
const rowOf = (place) => {
  const number = list.order[place],
    row = document.createElement("div"),
    name = document.createElement("span"),
    detail = document.createElement("span");
  row.className = "row";
  row.style.top = `${place * ROW}px`;
  row.id = `row-${number}`;
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", number === view.number);
  row.setAttribute("aria-posinset", place + 1);
  row.setAttribute("aria-setsize", list.order.length);
  name.className = "name";
  name.textContent = series.ids[number];
  name.title = series.ids[number];
  const uncertainty = series.uncertainty[number];
  detail.className = "detail";
  detail.textContent =
    $("sort").value === "uncertainty"
      ? `± ${uncertainty === null ? "–" : uncertainty.toFixed(2)}`
      : `${percent(series.missing[number])} missing`;
  row.append(name, detail);
  row.addEventListener("click", () => pick(place));
  return row;
};
const drawList = () => {
  const first = Math.max(0, Math.floor(list.element.scrollTop / ROW) - 4),
    last = Math.min(list.order.length, first + Math.ceil(list.element.clientHeight / ROW) + 8);
  list.all.style.height = `${list.order.length * ROW}px`;
  list.all.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => rowOf(first + i)));
  list.element.setAttribute("aria-activedescendant", `row-${view.number}`);
};
const pick = (place) => {
  if (!list.order.length) return;
  const bounded = Math.max(0, Math.min(list.order.length - 1, place)),
    top = bounded * ROW,
    box = list.element;
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  const changed = choose(list.order[bounded]);
  drawList();
  return changed;
};
const arrange = () => {
  const wanted = $("search").value.toLowerCase(),
    by = $("sort").value;
  list.order = series.ids.map((_, i) => i).filter((i) => series.ids[i].toLowerCase().includes(wanted));
  if (by !== "data") list.order.sort((a, b) => (series[by][b] ?? -1) - (series[by][a] ?? -1));
  list.element.scrollTop = 0;
  $("count").textContent = `${whole(list.order.length)} of ${whole(series.ids.length)} series`;
  drawList();
};
list.element.addEventListener("scroll", drawList, { passive: true });
list.element.addEventListener("keydown", (event) => {
  const place = list.order.indexOf(view.number),
    page = Math.floor(list.element.clientHeight / ROW);
  const to = {
    ArrowDown: place + 1,
    ArrowUp: place - 1,
    PageDown: place + page,
    PageUp: place - page,
    Home: 0,
    End: list.order.length - 1,
  }[event.key];
  if (to !== undefined) {
    event.preventDefault();
    pick(to);
  }
});
$("search").addEventListener("input", arrange);
$("sort").addEventListener("change", arrange);

// Columns to show.
const columnList = () => {
  const wanted = $("column-search").value.toLowerCase(),
    fitting = columns
      .map((_, j) => j)
      .filter((j) => columns[j].name.toLowerCase().includes(wanted))
      .slice(0, 200);
  $("column-list").replaceChildren(
    ...fitting.map((j) => {
      const label = document.createElement("label"),
        box = document.createElement("input"),
        name = document.createElement("span"),
        detail = document.createElement("span");
      box.type = "checkbox";
      box.checked = view.columns.has(j);
      name.textContent = columns[j].name;
      detail.className = "detail";
      detail.textContent = `${percent(columns[j].missing / data.steps)} missing`;
      box.addEventListener("change", () => {
        if (box.checked) view.columns.add(j);
        else view.columns.delete(j);
        countColumns();
        drawSeries();
      });
      label.append(box, name, detail);
      return label;
    }),
  );
};
const countColumns = () => {
  document.querySelector("#columns > summary").textContent = `Columns: ${view.columns.size} of ${columns.length}`;
};
$("column-search").addEventListener("input", columnList);
document.addEventListener("click", (event) => {
  if (!$("columns").contains(event.target)) $("columns").open = false;
});
$("columns").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    $("columns").open = false;
    document.querySelector("#columns > summary").focus();
  }
});

// The legend of the plot, which also switches layers on and off.
const KEYS = [
  ["", "observed", '<circle cx="13" cy="7" r="3" fill="var(--observed)"/>'],
  [
    "",
    "filled",
    '<path d="M1 7H25" stroke="var(--filled)" stroke-width="1.6"/><circle cx="13" cy="7" r="3.2" fill="var(--paper)" stroke="var(--filled)" stroke-width="1.6"/>',
  ],
  [
    "band",
    "50 % and 90 % bands",
    '<rect x="1" y="1" width="24" height="12" fill="var(--filled)" opacity=".2"/><rect x="1" y="4" width="24" height="6" fill="var(--filled)" opacity=".4"/>',
  ],
  ["samples", "samples", '<path d="M1 10L9 4L17 9L25 3" fill="none" stroke="var(--sample)" stroke-dasharray="2 2"/>'],
  ["truth", "held-out truth", '<path d="M9 3L17 11M17 3L9 11" stroke="var(--truth)" stroke-width="2"/>'],
];
const offered = { band: series.bands, samples: series.samples > 0, truth: series.truth };
for (const [what, text, picture] of KEYS) {
  if (what && !offered[what]) continue;
  const key = document.createElement(what ? "label" : "span");
  key.innerHTML = `${what ? '<input type="checkbox">' : ""}<svg viewBox="0 0 26 14" aria-hidden="true">${picture}</svg><span>${text}</span>`;
  if (what) {
    key.firstChild.checked = view.show[what];
    key.firstChild.addEventListener("change", (event) => {
      view.show[what] = event.target.checked;
      drawSeries();
    });
  }
  $("keys").append(key);
}
$("baseline").addEventListener("change", (event) => {
  view.baseline = event.target.value;
  drawSeries();
});
