"use strict";
// Colours, navigation and start-up.

const themes = { auto: "light", light: "dark", dark: "auto" };
const redraw = () => {
  for (const id of drawn) charts.get(id)();
};
$("theme").addEventListener("click", () => {
  const next = themes[document.documentElement.dataset.theme || "auto"];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  $("theme").textContent = `Colours: ${next}`;
  $("theme").setAttribute(
    "aria-label",
    `Colours: ${next === "auto" ? "as in the system" : next}. Press to change`,
  );
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
matchMedia("(max-width: 759px)").addEventListener("change", () => {
  reserve();
  redraw();
});

// A print has no scrolling: draw the charts that were not in view yet.
addEventListener("beforeprint", () => {
  if (!document.documentElement.dataset.ready) return;
  for (const id of charts.keys()) if (!drawn.has(id)) draw(id);
});

const links = new Map([...document.querySelectorAll(".top nav a")].map((link) => [link.hash.slice(1), link]));
const mark = () => {
  const passed = [...links.keys()].filter((id) => $(id).getBoundingClientRect().top < innerHeight / 3);
  const here =
    innerHeight + scrollY >= document.documentElement.scrollHeight - 4
      ? [...links.keys()].pop()
      : passed.pop() || [...links.keys()][0];
  for (const [id, link] of links)
    if (id === here) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
};
addEventListener("scroll", mark, { passive: true });
mark();

const start = async () => {
  try {
    if (typeof DecompressionStream === "undefined")
      throw new Error("this browser is too old (DecompressionStream, available since 2023, is missing)");
    arrange();
    columnList();
    countColumns();
    reserve();
    const script = document.createElement("script");
    script.nonce = nonce;
    script.textContent = new TextDecoder().decode(await unpacked("plotly"));
    document.head.append(script);
    await choose(0);
    reserve();
    const sight = new IntersectionObserver(
      (entries) => {
        for (const entry of entries)
          if (entry.isIntersecting) {
            sight.unobserve(entry.target);
            draw(entry.target.id);
          }
      },
      { rootMargin: "400px" },
    );
    for (const id of charts.keys()) sight.observe($(id));
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    $("trouble").hidden = false;
    $("trouble").textContent = `The charts cannot be drawn: ${error.message}`;
    throw error;
  }
};
start();
