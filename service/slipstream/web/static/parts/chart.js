// A chart by uPlot, in the colours of the page. It is loaded when the first one is shown.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { onTheme } from "../lib/theme.js";

let library = null;

function load() {
  if (!library) {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = "ui/vendor/uplot.css";
    document.head.append(sheet);
    library = import("../vendor/uplot.js").then((module) => module.default);
  }
  return library;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * `data`: lists of numbers of one length, x first; null is a gap. `series`: for each further list its `label`, and
 * optionally `format`, `dash`, `points` (no line, unless `line`), `gaps` (the line goes on over them), `hidden`, or
 * `band: [upper, lower]`, two indices of lists whose space between is filled. `legend`: whether there is one. The same
 * numbers are to stand in a table beside it, for readers of screens.
 */
export function Chart({ label, data, series, height = 220, x = {}, y = {}, legend = true }) {
  const place = useRef(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined; // the page was left before this ran
    let plot = null;
    let ended = false;
    const draw = (uPlot) => {
      if (ended) return;
      if (plot) plot.destroy();
      plot = new uPlot(options({ data, series, height, x, y, legend, width: box.clientWidth }), data, box);
    };
    const all = load();
    all.then(draw, () => setFailure(new Error("The chart could not be loaded.")));
    const away = onTheme(() => all.then(draw));
    const sizes = new ResizeObserver(() => plot && plot.setSize({ width: box.clientWidth, height }));
    sizes.observe(box);
    return () => {
      ended = true;
      away();
      sizes.disconnect();
      if (plot) plot.destroy();
    };
  }, [JSON.stringify(data), JSON.stringify(series), height]);
  if (failure) return html`<p class="failure" role="alert">${failure.message}</p>`;
  return html`<figure class="chart" role="img" aria-label=${label}><div ref=${place}></div></figure>`;
}

/** The range of an axis whose values are all 0, to which the library would give thousands of per cent. */
const OF_NOTHING = [0, 1];

const isNothing = (data) => data.slice(1).every((values) => values.every((value) => !value));

function options({ data, series, height, x, y, legend, width }) {
  const line = colour("line-soft");
  const text = colour("muted");
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
  const names = ["series-1", "series-2", "series-3", "series-4"];
  const bands = [];
  const shown = series.map((one, index) => {
    const stroke = colour(one.colour || names[index % names.length]);
    if (one.band) bands.push({ series: one.band, fill: stroke + "26" });
    return {
      label: one.label,
      stroke: one.hidden ? "transparent" : stroke,
      class: one.hidden ? "hidden" : undefined,
      width: one.points && !one.line ? 0 : 2,
      dash: one.dash,
      spanGaps: one.gaps,
      points: { show: one.hidden ? false : one.points || undefined, size: 6 },
      value: (_, value) => (value === null || value === undefined ? "–" : one.format ? one.format(value) : value.toFixed(3)),
    };
  });
  return {
    width,
    height,
    cursor: { drag: { x: false, y: false } },
    legend: { show: legend, live: true },
    scales: { x: { time: Boolean(x.time) }, y: y.range ? { range: y.range } : isNothing(data) ? { range: OF_NOTHING } : {} },
    axes: [
      { ...axis, size: 30, label: x.label, labelSize: 18, labelFont: "12px system-ui", incrs: x.whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : undefined },
      { ...axis, size: 60, label: y.label, labelSize: 18, labelFont: "12px system-ui", values: y.format ? (_, all) => all.map(y.format) : undefined },
    ],
    series: [{ label: x.label || "", value: x.format ? (_, value) => (value === null ? "–" : x.format(value)) : undefined }, ...shown],
    bands,
  };
}
