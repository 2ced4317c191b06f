// Draws the figures of a page from the JSON blocks inside them. Without this script each has a table beside it.
const wide = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colours = () => ({
  text: wide("--text"), muted: wide("--muted"), line: wide("--line"), axis: wide("--axis"), ground: wide("--surface"),
  accent: wide("--accent"), good: wide("--good"), bad: wide("--bad"), warn: wide("--warn"), other: wide("--h-builtin"),
  more: wide("--h-keyword"), mono: wide("--mono"), sans: wide("--sans"),
});
const series = (c) => [c.accent, c.warn, c.good, c.other, c.bad, c.more, c.muted];
const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const symbols = ["circle", "square", "diamond", "cross", "x", "triangle-up"];
// Texts come from tasks and models: plotly reads a few tags and entities in labels, so none may look like one.
const plain = (text, limit = 48) => {
  const whole = String(text);
  const short = whole.length > limit ? `${whole.slice(0, limit - 1)}…` : whole;
  return short.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
};

function layout(c, extra) {
  const axis = { gridcolor: c.line, linecolor: c.axis, zerolinecolor: c.line, tickfont: { family: c.mono, size: 11 }, automargin: true, fixedrange: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: c.text, family: c.sans, size: 12 },
    margin: { l: 48, r: 12, t: 12, b: 40 }, showlegend: false, hovermode: "closest", dragmode: false,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } },
    hoverlabel: { bgcolor: c.ground, bordercolor: c.axis, font: { color: c.text, family: c.mono, size: 12 } },
    ...extra, xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
  };
}

// A trace for each model: filled where figures count, hollow where they cannot be relied on.
const dotted = (r, c, x, y, text) => r.series.map((each, i) => {
  const colour = series(c)[i % series(c).length];
  return {
    type: "scatter", mode: "markers", name: plain(each.name, 28), x: each.dots.map((dot) => x(dot, i)), y: each.dots.map((dot) => y(dot, i)),
    marker: { size: 10, symbol: symbols[i % symbols.length], color: each.dots.map((dot) => dot.sure ? colour : c.ground), line: { color: colour, width: 1.5 } },
    text: each.dots.map((dot) => `${plain(each.name)}<br>${plain(dot.hash)}: ${text(dot)}${dot.sure ? "" : ", not to be relied on"}`), hovertemplate: "%{text}<extra></extra>",
  };
});

const kinds = {
  best(points, c) {
    const measured = points.filter((p) => p.speedup !== null);
    const sure = measured.filter((p) => p.sure);
    const unsure = measured.filter((p) => !p.sure);
    const dots = (list, marker, name) => ({
      type: "scatter", mode: "markers", name, x: list.map((p) => p.round), y: list.map((p) => p.speedup), marker,
      error_y: { type: "data", symmetric: false, array: list.map((p) => Math.max((p.high ?? p.speedup) - p.speedup, 0)), arrayminus: list.map((p) => Math.max(p.speedup - (p.low ?? p.speedup), 0)), color: c.axis, thickness: 1.2, width: 3 },
      hovertemplate: "round %{x}<br>%{y:.2f}×<extra></extra>",
    });
    const figures = points.flatMap((p) => [p.speedup, p.low, p.high, p.best]).filter((v) => v !== null && v > 0);
    const steep = Math.max(1, ...figures) / Math.min(1, ...figures) > 12;
    const last = points.length ? points[points.length - 1].round : 1;
    return [[
      { type: "scatter", mode: "lines", name: "best so far", x: points.map((p) => p.round), y: points.map((p) => p.best), line: { shape: "hv", color: c.good, width: 2 }, hovertemplate: "best so far after round %{x}<br>%{y:.2f}×<extra></extra>" },
      dots(sure, { color: c.accent, size: 8 }, "round"),
      dots(unsure, { color: c.ground, size: 8, line: { color: c.muted, width: 1.5 } }, "not to be relied on"),
    ], layout(c, {
      xaxis: { title: { text: "round" }, range: [0.5, last + 0.5], dtick: last > 20 ? undefined : 1, tickformat: "d" },
      yaxis: { title: { text: "× eager" }, tickformat: "~g", ...(steep ? { type: "log", dtick: "D2" } : { rangemode: "tozero" }) },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: c.axis, width: 1, dash: "dot" } }],
    })];
  },
  latency(data, c) {
    const palette = { eager: c.muted, compile: c.warn, candidate: c.accent };
    const traces = data.lines.flatMap((line) => line.sets.map((values, index) => ({
      type: "box", orientation: "h", x: values, y: values.map(() => `${plain(line.title, 30)} ${index + 1}`), name: plain(line.title, 30), boxpoints: "all", jitter: 0.5, pointpos: 0,
      marker: { color: palette[line.name] ?? c.axis, size: 3, opacity: 0.65 }, line: { width: 1.2 }, fillcolor: "rgba(0,0,0,0)", hoverinfo: "x", hoveron: "points",
    })));
    return [traces, layout(c, { xaxis: { title: { text: `${data.unit} a call` }, type: "log", dtick: "D2", tickformat: "~g" }, yaxis: { autorange: "reversed" } })];
  },
  roofline(r, c) {
    // Work per byte against speed, both logarithmic; the roof is the device's limit. Candidates of one op do the same
    // work, so their dots stand on one line.
    const ridge = r.peak_gflop_per_s && r.peak_gb_per_s ? r.peak_gflop_per_s / r.peak_gb_per_s : null;
    const at = r.intensity;
    const low = Math.min(at / 8, ridge ? ridge / 8 : at / 8);
    const high = Math.max(at * 8, ridge ? ridge * 8 : at * 8);
    const roof = (x) => Math.min(x * r.peak_gb_per_s, r.peak_gflop_per_s ?? Infinity);
    const xs = [low, ...(ridge && ridge > low && ridge < high ? [ridge] : []), high];
    const least = Math.min(...r.series.flatMap((each) => each.dots.map((dot) => dot.gflop)));
    return [[
      { type: "scatter", mode: "lines", name: "limit", x: xs, y: xs.map(roof), line: { color: c.warn, width: 2 }, hovertemplate: `limit %{y:.3~g} ${r.compute_unit}<extra></extra>`, showlegend: false },
      { type: "scatter", mode: "lines", x: [at, at], y: [least, roof(at)], line: { color: c.axis, width: 1, dash: "dot" }, hoverinfo: "skip", showlegend: false },
      ...dotted(r, c, () => at, (dot) => dot.gflop, (dot) => `${dot.gflop.toPrecision(3)} ${r.compute_unit}`),
    ], layout(c, {
      showlegend: r.series.length > 1,
      xaxis: { title: { text: "FLOP a byte" }, type: "log", dtick: "D2", tickformat: "~g" },
      yaxis: { title: { text: r.compute_unit }, type: "log", dtick: "D2", tickformat: "~g" },
    })];
  },
  rates(r, c) {
    // An op that computes little: how fast each candidate moves bytes, a line for each model.
    const names = r.series.map((each) => plain(each.name, 28));
    return [
      dotted(r, c, (dot) => dot.gb, (dot, i) => names[i], (dot) => `${dot.gb.toPrecision(3)} ${r.bandwidth_unit}`),
      layout(c, {
        xaxis: { title: { text: r.bandwidth_unit }, range: [0, 1.08 * Math.max(r.peak_gb_per_s, ...r.series.flatMap((each) => each.dots.map((dot) => dot.gb)))] },
        yaxis: { autorange: "reversed", type: "category" },
        shapes: [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: r.peak_gb_per_s, x1: r.peak_gb_per_s, line: { color: c.warn, width: 2 } }],
      }),
    ];
  },
  bandwidth(r, c) {
    return [[
      { type: "bar", orientation: "h", y: ["limit", "reached"], x: [r.peak_gb_per_s, r.achieved_gb_per_s], marker: { color: [c.axis, c.accent] }, text: [r.peak_gb_per_s, r.achieved_gb_per_s].map((v) => `${v.toPrecision(3)} ${r.bandwidth_unit}`), textposition: "outside", textfont: { family: c.mono, size: 12 }, cliponaxis: false, hoverinfo: "skip" },
    ], layout(c, { xaxis: { title: { text: r.bandwidth_unit }, range: [0, 1.6 * Math.max(r.peak_gb_per_s, r.achieved_gb_per_s)] }, yaxis: { autorange: "reversed" } })];
  },
  fastp(data, c) {
    const colour = series(c);
    const traces = data.map((line, i) => ({
      type: "scatter", mode: "lines+markers", name: plain(line.name), x: line.p, y: line.share, line: { color: colour[i % colour.length], width: 2, dash: dashes[Math.floor(i / colour.length) % dashes.length] }, marker: { size: 7, symbol: symbols[i % symbols.length] },
      hovertemplate: `${plain(line.name)}<br>fast_%{x}: %{y:.0%}<extra></extra>`,
    }));
    return [traces, layout(c, { showlegend: true, xaxis: { title: { text: "p (times the baseline)" } }, yaxis: { title: { text: "share of tasks" }, range: [-0.02, 1.05], tickformat: ".0%" } })];
  },
  heat(data, c) {
    const most = Math.max(1, ...data.logs.flat().filter((v) => v !== null).map(Math.abs));
    return [[
      { type: "heatmap", z: data.logs, x: data.models.map((m) => plain(m, 32)), y: data.tasks.map((t) => plain(t, 40)), text: data.shown, texttemplate: "%{text}", hovertemplate: "%{y}<br>%{x}<br>%{text}<extra></extra>", xgap: 2, ygap: 2, zmin: -most, zmax: most, showscale: false, hoverongaps: true, textfont: { family: c.mono, size: 11, color: c.text },
        colorscale: [[0, c.bad], [0.5, c.ground], [1, c.good]].map(([at, value]) => [at, mix(value, c.ground, at === 0.5 ? 1 : 0.5)]) },
    ], layout(c, { xaxis: { side: "top", type: "category", showgrid: false }, yaxis: { autorange: "reversed", type: "category", showgrid: false }, margin: { l: 120, r: 12, t: 48, b: 8 } })];
  },
};

const heights = { heat: (data) => 64 + 26 * data.tasks.length, bandwidth: () => 176, rates: (data) => 72 + 30 * data.series.length };

function mix(colour, ground, share) {
  const parts = (value) => { const hex = value.replace("#", ""); return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)); };
  const [a, b] = [parts(colour), parts(ground)];
  return `rgb(${a.map((v, i) => Math.round(v * share + b[i] * (1 - share))).join(",")})`;
}

let loading = null;
function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const { plotly: source, styles } = document.getElementById("charts-script").dataset;
    for (const id of styles.split(" ").filter(Boolean)) { // where these are there, plotly adds no style elements of maps
      const mark = document.createElement("template");
      mark.id = id;
      document.head.append(mark);
    }
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("the chart script cannot be loaded"));
    document.head.append(script);
  });
  return loading;
}

const drawn = new WeakMap(); // what each figure shows

export async function drawAll(root = document, anew = false) {
  const figures = [...root.querySelectorAll("figure.chart[data-chart]")];
  if (!figures.length) return;
  let Plotly;
  try {
    Plotly = await plotly();
  } catch (error) {
    for (const figure of figures) figure.querySelector(".plot").textContent = "The chart cannot be shown; its figures stand in the table.";
    return;
  }
  const c = colours();
  for (const figure of figures) {
    if (!figure.isConnected) continue;
    const text = figure.querySelector('script[type="application/json"]').textContent;
    if (!anew && drawn.get(figure) === text) continue;
    drawn.set(figure, text);
    const data = JSON.parse(text);
    const [traces, made] = kinds[figure.dataset.chart](data, c);
    const plot = figure.querySelector(".plot");
    await Plotly.react(plot, traces, { ...made, height: heights[figure.dataset.chart]?.(data) ?? 300 }, { displayModeBar: false, responsive: true, staticPlot: false, scrollZoom: false, doubleClick: false });
    figure.dataset.drawn = "yes";
  }
}

export function drop(root) {
  for (const plot of root.querySelectorAll(".js-plotly-plot")) globalThis.Plotly?.purge(plot);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document, true));
drawAll();
