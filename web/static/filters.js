// Filters apply as they change: the page is asked for again with them, and what is different is put in its place, so
// that the focus and what is being typed stay. Without this script a button in the form does the same.
import { patchChildren } from "./patch.js";

const TYPING_MS = 250;
const part = document.getElementById("filtered");
let timer = null;
let asked = 0;

function address() {
  const form = part.querySelector("form[data-instant]");
  const given = [...new FormData(form)].filter(([, value]) => typeof value === "string" && value.trim() !== "");
  const query = new URLSearchParams(given).toString();
  return form.getAttribute("action") + (query ? `?${query}` : "");
}

async function show(url) {
  const number = ++asked;
  part.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    if (number !== asked) return; // a later change has been asked for
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("filtered");
    if (number !== asked) return;
    if (!answer.ok || !fresh) { location.assign(url); return; }
    patchChildren(part, fresh);
    history.replaceState(null, "", url);
  } catch {
    location.assign(url); // the browser says what is wrong with the server
  } finally {
    if (number === asked) part.removeAttribute("aria-busy");
  }
}

function soon(ms) {
  clearTimeout(timer);
  timer = setTimeout(() => show(address()), ms);
}

if (part) {
  part.addEventListener("change", (event) => { if (event.target.closest("form[data-instant]")) soon(0); });
  part.addEventListener("input", (event) => { if (event.target.matches("form[data-instant] input[type=search]")) soon(TYPING_MS); });
  part.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-instant]")) return;
    event.preventDefault();
    soon(0);
  });
}
