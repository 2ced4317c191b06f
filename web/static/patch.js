// Makes a part of a page equal to a fresh one without replacing what is the same: whoever has the focus, has scrolled,
// has opened something or has chosen something in a form keeps that. Elements with an id or a data-key are known by it
// wherever they stand, others by their place.
const KEPT = { DETAILS: ["open"], FIGURE: ["data-drawn"] }; // what the reader or a script has set since

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "");

export function patchChildren(old, fresh, dropped = () => {}) {
  const wanted = new Set([...fresh.childNodes].map(keyOf).filter(Boolean));
  const known = new Map();
  for (const node of [...old.childNodes]) {
    const key = keyOf(node);
    if (!key) continue;
    if (wanted.has(key) && !known.has(key)) known.set(key, node);
    else remove(node, dropped);
  }
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const key = keyOf(next);
    let match = at;
    if (key) {
      match = known.get(key) ?? null;
      known.delete(key);
    } else if (at && (keyOf(at) || at.nodeName !== next.nodeName)) {
      match = null;
    }
    if (!match || match.nodeName !== next.nodeName) {
      old.insertBefore(document.importNode(next, true), at);
      continue;
    }
    while (at && at !== match && !keyOf(at)) at = removed(at, dropped); // rather than move what may have the focus
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    patch(match, next, dropped);
  }
  while (at) at = removed(at, dropped);
}

function removed(node, dropped) {
  const after = node.nextSibling;
  remove(node, dropped);
  return after;
}

function patch(old, fresh, dropped) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.matches(".plot")) return; // a chart is drawn anew from its figures, not from the page
  const kept = KEPT[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !kept.includes(name)) old.setAttribute(name, value);
  patchChildren(old, fresh, dropped);
}

function remove(node, dropped) {
  if (node.nodeType === Node.ELEMENT_NODE) dropped(node);
  node.remove();
}
