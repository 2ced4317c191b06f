// Keeps a page up to date: a stream of events says that something has changed, and what the page shows of it is asked
// for as a part. Small steps of a job go straight into their line.
import { drawAll, drop } from "./charts.js";
import { patchChildren } from "./patch.js";

const live = document.getElementById("live");
const QUIET = new Set(["step", "llm_started", "llm_call", "llm_fault"]);
const KINDS = ["job_started", "memory", "round_started", "llm_started", "llm_fault", "llm_call", "llm_failed", "reply_rejected", "candidate", "evaluation_started", "phase", "evaluated", "proof_started", "proved", "advice", "best", "round_done", "job_stopped", "ended", "remeasured", "step", "status", "end"];
const WAIT_MS = 300;
const POLL_MS = 5000;
const COUNT_MS = 500;
const SHARE = 4; // of the time, at most a quarter goes into asking: a large batch takes long to show
let timer = null;
let polling = null;
let ticking = null;
let busy = false;
let again = false;
let tookMs = [0, 0]; // the last two answers
let shownAt = performance.now(); // when the page's elapsed times were true
let counting = null;

function span(seconds) { // as the server writes it
  if (seconds < 60) return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor(whole / 60) % 60).padStart(2, "0")} min`;
}

function count() { // what takes time goes on between two answers of the server
  for (const each of live.querySelectorAll("[data-elapsed]")) {
    const seconds = Number(each.dataset.elapsed) + (performance.now() - shownAt) / 1000;
    if (each.nodeName === "PROGRESS") each.value = Math.min(seconds, each.max);
    else each.textContent = span(seconds);
  }
}

function soon(ms = WAIT_MS) {
  // One slow answer may be an accident (the first one of a server, say); two are not.
  timer ??= setTimeout(() => { timer = null; refresh(); }, Math.max(ms, SHARE * Math.min(...tookMs)));
}

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  const began = performance.now();
  try {
    const answer = await fetch(live.dataset.part, { headers: { Accept: "text/html" } });
    if (answer.ok) put(await answer.text());
  } catch {
    // The server is away; the stream or the next poll will tell when it is back.
  } finally {
    tookMs = [tookMs[1], performance.now() - began];
    busy = false;
    if (again) { again = false; soon(); }
  }
}

function put(html) {
  const before = live.querySelector("#log");
  const atEnd = !before || before.scrollHeight - before.scrollTop - before.clientHeight < 40;
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  shownAt = performance.now();
  patchChildren(live, new DOMParser().parseFromString(html, "text/html").body, drop);
  const log = live.querySelector("#log");
  if (log && atEnd) log.scrollTop = log.scrollHeight;
  // What had the focus may have been moved, or be gone, such as a button that is of no use any more: go on near it.
  if (focused && focused !== document.activeElement) {
    const near = focused.isConnected ? focused : live.querySelector("#state a, #state button") ?? live;
    near.focus({ preventScroll: true });
  }
  drawAll(live);
  const state = live.querySelector("#state")?.dataset ?? {};
  if (state.title) document.title = document.title.replace(/^(\[[a-z0-9/]+\] )?/, `${state.title} `);
  if (state.open === "no") stop();
}

function step(text) {
  const line = live.querySelector("#step");
  if (line && text) line.textContent = text.length > 200 ? `${text.slice(0, 199)}…` : text;
}

function told(event) {
  let data = {};
  try { data = JSON.parse(event.data); } catch { /* a kind without data */ }
  const kind = data.kind ?? event.type;
  if (kind === "step") step(String((data.data ?? data).text ?? ""));
  if (kind === "status") soon(0);
  else soon(QUIET.has(kind) ? 4 * WAIT_MS : WAIT_MS);
}

let source = null;
function start() {
  const after = live.dataset.last === undefined ? "" : `?after=${encodeURIComponent(live.dataset.last)}`;
  source = new EventSource(live.dataset.events + after);
  source.onopen = () => { clearInterval(polling); polling = null; };
  source.onmessage = told;
  for (const kind of KINDS) source.addEventListener(kind, told);
  source.onerror = () => { polling ??= setInterval(refresh, POLL_MS); };
  counting ??= setInterval(count, COUNT_MS);
  if (live.dataset.everyMs) ticking = setInterval(refresh, Number(live.dataset.everyMs)); // what ages by itself
}

function stop() {
  source?.close();
  source = null;
  clearInterval(polling);
  clearInterval(ticking);
  clearInterval(counting);
  polling = ticking = counting = null;
}

const log = live.querySelector("#log");
if (log) log.scrollTop = log.scrollHeight;
if (live.querySelector("#state")?.dataset.open !== "no") {
  start();
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) { refresh(); start(); } });
}
