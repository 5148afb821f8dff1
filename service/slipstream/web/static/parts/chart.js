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
 * optionally `format`, `dash`, `points` (no line), or `band: [upper, lower]`, two indices of lists whose space between
 * is filled. `table`: whether the same numbers are given as a table for readers of screens (default: yes).
 */
export function Chart({ label, data, series, height = 220, x = {}, y = {} }) {
  const place = useRef(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    let plot = null;
    let ended = false;
    const draw = (uPlot) => {
      if (ended) return;
      if (plot) plot.destroy();
      plot = new uPlot(options(uPlot, { series, height, x, y, width: place.current.clientWidth }), data, place.current);
    };
    const all = load();
    all.then(draw, () => setFailure(new Error("The chart could not be loaded.")));
    const away = onTheme(() => all.then(draw));
    const sizes = new ResizeObserver(() => plot && plot.setSize({ width: place.current.clientWidth, height }));
    sizes.observe(place.current);
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

function options(uPlot, { series, height, x, y, width }) {
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
      width: one.points ? 0 : 2,
      dash: one.dash,
      points: { show: one.points || undefined, size: 6 },
      value: (_, value) => (value === null || value === undefined ? "–" : one.format ? one.format(value) : value.toFixed(3)),
    };
  });
  return {
    width,
    height,
    cursor: { drag: { x: false, y: false } },
    legend: { live: true },
    scales: { x: { time: Boolean(x.time) }, y: y.range ? { range: y.range } : {} },
    axes: [
      { ...axis, label: x.label, labelSize: 18, labelFont: "12px system-ui", incrs: x.whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : undefined },
      { ...axis, size: 56, label: y.label, labelSize: 18, labelFont: "12px system-ui", values: y.format ? (_, all) => all.map(y.format) : undefined },
    ],
    series: [{ label: x.label || "", value: x.format ? (_, value) => (value === null ? "–" : x.format(value)) : undefined }, ...shown],
    bands,
  };
}
