// Follows a job: small steps go straight into the log, whatever changes more is asked for as a part of the page.
import { drawAll, drop } from "./charts.js";

const live = document.getElementById("live");
const QUIET = new Set(["step", "llm_started", "llm_call", "llm_fault", "evaluation_started"]);
const KINDS = ["job_started", "round_started", "llm_started", "llm_fault", "llm_call", "llm_failed", "reply_rejected", "candidate", "evaluation_started", "evaluated", "advice", "best", "round_done", "job_stopped", "ended", "step", "status", "end"];
const WAIT_MS = 300;
const POLL_MS = 5000;
let timer = null;
let polling = null;
let busy = false;
let again = false;

function soon(ms = WAIT_MS) {
  timer ??= setTimeout(() => { timer = null; refresh(); }, ms);
}

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(live.dataset.part, { headers: { Accept: "text/html" } });
    if (answer.ok) put(await answer.text());
  } catch {
    // The server is away; the stream or the next poll will tell when it is back.
  } finally {
    busy = false;
    if (again) { again = false; soon(); }
  }
}

function put(html) {
  const before = live.querySelector("#log");
  const atEnd = !before || before.scrollHeight - before.scrollTop - before.clientHeight < 40;
  const top = before?.scrollTop ?? 0;
  const focused = document.activeElement && live.contains(document.activeElement) ? document.activeElement.id : "";
  const open = new Map([...live.querySelectorAll("details[data-key]")].map((each) => [each.dataset.key, each.open]));
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const carried = live.querySelector('figure[data-chart="best"]');
  const next = fresh.querySelector('figure[data-chart="best"]');
  if (carried && next) { // the chart stays and gets the new figures, so that nothing flickers
    carried.querySelector("script").textContent = next.querySelector("script").textContent;
    next.replaceWith(carried);
  } else if (carried) {
    drop(live);
  }
  live.replaceChildren(...fresh.body.childNodes);
  for (const each of live.querySelectorAll("details[data-key]")) if (open.has(each.dataset.key)) each.open = open.get(each.dataset.key);
  const log = live.querySelector("#log");
  if (log) log.scrollTop = atEnd ? log.scrollHeight : top;
  if (focused) (document.getElementById(focused) ?? live.querySelector("#state a, #state button"))?.focus();
  drawAll(live);
  const status = live.querySelector("#state")?.dataset.status;
  document.title = document.title.replace(/^(\[[a-z]+\] )?/, `[${status}] `);
  if (status !== "queued" && status !== "running") stop();
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
  source = new EventSource(`${live.dataset.events}?after=${encodeURIComponent(live.dataset.last)}`);
  source.onopen = () => { clearInterval(polling); polling = null; };
  source.onmessage = told;
  for (const kind of KINDS) source.addEventListener(kind, told);
  source.onerror = () => { polling ??= setInterval(refresh, POLL_MS); };
}

function stop() {
  source?.close();
  source = null;
  clearInterval(polling);
  polling = null;
}

const log = live.querySelector("#log");
if (log) log.scrollTop = log.scrollHeight;
if (live.dataset.open === "yes") {
  start();
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) { refresh(); start(); } });
}
