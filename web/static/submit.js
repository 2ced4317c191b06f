// Checks an op while it is written. Without this script the form's own button does the same.
const form = document.getElementById("submit-form");
const source = document.getElementById("source");
const file = document.getElementById("file");
const verdict = document.getElementById("check-result");
const check = document.getElementById("check");
const token = document.querySelector('meta[name="csrf-token"]').content;
let asked = 0;

async function ask() {
  const number = ++asked;
  if (!source.value.trim()) { say("note", "Paste an op, or choose a file, first."); return; }
  say("note", "Checking.");
  try {
    const answer = await fetch(form.dataset.check, {
      method: "POST", headers: { "Content-Type": "application/json", "X-CSRF-Token": token }, body: JSON.stringify({ source: source.value, name: document.getElementById("name").value || "op" }),
    });
    const found = await answer.json();
    if (number !== asked) return;
    if (found.ok) {
      say("note good", `Valid: category ${found.category}, ${found.dtype}. Nothing of it was run yet; the worker does that in a sandbox.`);
    } else {
      const said = String(found.message ?? found.detail ?? "It cannot be checked.");
      wrong(said, Number(/^[^\s]*?:(\d+): /.exec(said)?.[1] ?? 0));
    }
  } catch {
    if (number === asked) say("note bad", "The server does not answer; submitting checks it as well.");
  }
}

function say(kind, text) {
  verdict.className = kind;
  verdict.replaceChildren(document.createTextNode(text));
  source.removeAttribute("aria-invalid");
}

function wrong(text, line) {
  say("note bad", text);
  source.setAttribute("aria-invalid", "true");
  if (!line) return;
  const go = document.createElement("button");
  go.type = "button";
  go.textContent = `Go to line ${line}`;
  go.addEventListener("click", () => select(line));
  const where = document.createElement("p");
  where.append(go);
  verdict.append(where);
}

function select(line) {
  const lines = source.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  source.focus();
  source.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  source.scrollTop = Math.max(0, (line - 4) * (source.scrollHeight / lines.length));
}

check.addEventListener("click", (event) => { event.preventDefault(); ask(); });
file.addEventListener("change", async () => {
  const chosen = file.files[0];
  if (!chosen) return;
  if (chosen.size > 262144) { say("note bad", `${chosen.name} is over 256 KiB; cut it down to the one op to optimize.`); file.value = ""; return; }
  source.value = await chosen.text();
  const name = document.getElementById("name");
  if (!name.value) name.value = chosen.name.replace(/\.py$/, "").replace(/[^A-Za-z0-9_.-]/g, "_").replace(/^[.-]+/, "").slice(0, 100);
  file.value = "";
  ask();
});
source.addEventListener("paste", () => setTimeout(ask, 0));

// A file with weights goes to the server as it is chosen: it may be large, and the form names what was sent.
const weights = document.getElementById("weights");
const weightsFile = document.getElementById("weights-file");
const sent = document.getElementById("weights-result");

function tell(kind, text) {
  sent.className = kind;
  sent.replaceChildren(document.createTextNode(text));
}

weightsFile.addEventListener("change", () => {
  const chosen = weightsFile.files[0];
  if (!chosen) return;
  const request = new XMLHttpRequest(); // fetch does not tell how much has been sent
  const buttons = form.querySelectorAll('button[value="submit"]');
  const ended = (kind, text) => { tell(kind, text); weightsFile.disabled = false; buttons.forEach((button) => { button.disabled = false; }); };
  weightsFile.disabled = true;
  buttons.forEach((button) => { button.disabled = true; });
  tell("note", `Sending ${chosen.name}.`);
  request.upload.addEventListener("progress", (event) => {
    if (event.lengthComputable) tell("note", event.loaded < event.total ? `Sending ${chosen.name}: ${Math.floor((100 * event.loaded) / event.total)} %` : `${chosen.name} is being stored.`);
  });
  request.addEventListener("load", () => {
    let found = {};
    try { found = JSON.parse(request.responseText); } catch { /* said below */ }
    if (!found.digest) { ended("note bad", String(found.detail ?? `The server refuses ${chosen.name}.`)); weightsFile.value = ""; return; }
    const known = [...weights.options].find((option) => option.value === found.digest);
    weights.value = (known ?? weights.appendChild(new Option(`${found.digest.slice(0, 12)}, ${chosen.name}`, found.digest))).value;
    ended("note good", `${chosen.name} is kept for your runs.`);
  });
  request.addEventListener("error", () => ended("note bad", "The connection broke; choose the file again to go on."));
  request.open("PUT", form.dataset.weights);
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.setRequestHeader("X-CSRF-Token", token);
  request.send(chosen);
});

// What goes together: a choice that does not go with the others cannot be made, and says why. The server checks it again.
const combinations = JSON.parse(document.getElementById("combinations").textContent);
const strategy = document.getElementById("strategy");
const seed = document.getElementById("seed");
const whole = document.getElementById("whole");
const domain = document.getElementById("domain");
const refused = document.getElementById("combination");
const isBuiltin = (name) => name.trim().startsWith(`${combinations.builtin}/`);

function fit() {
  const platform = form.elements.platform.value;
  const model = document.getElementById("model").value;
  const judge = document.getElementById("judge_model").value;
  const seeds = combinations.seeds[platform] ?? [];
  for (const [index, each] of combinations.strategies.entries()) {
    const why = each.not_on[platform] ?? (isBuiltin(model) ? each.not_builtin : "");
    const option = strategy.options[index];
    option.disabled = why !== "";
    option.title = why;
  }
  const chosen = strategy.selectedOptions[0];
  document.getElementById("strategy-text").textContent = chosen?.dataset.text ?? "";
  for (const option of seed.options) option.disabled = option.value !== "" && !seeds.includes(option.value);
  domain.disabled = whole.value !== "";
  const reasons = [
    chosen?.disabled ? chosen.title : "",
    (isBuiltin(model) || isBuiltin(judge)) && !seeds.length ? `A built-in model cannot write for ${platform}: name a language model.` : "",
    seed.selectedOptions[0]?.disabled ? `The ${seed.value} does not write for ${platform}: leave the first candidate to the model.` : "",
    whole.value && !combinations.models_on.includes(platform) ? `Whole models are for ${combinations.models_on.join(", ")}.` : "",
  ].filter(Boolean);
  refused.textContent = reasons.join(" ");
  strategy.setCustomValidity(reasons[0] ?? "");
}

form.addEventListener("change", fit);
form.addEventListener("input", fit);
fit();
