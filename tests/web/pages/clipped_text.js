// What of a page's text is cut off without a way to scroll to it, stands beyond the edge, or breaks inside a word.
// Source, hashes, hostile text, and whatever is longer than a narrow column may break anywhere; a line may end after a
// sign such as a slash or an underscore.
() => {
  const LONGEST = 22; // letters of a word that fit into the narrowest column
  const ARROW = 20; // of a select
  const APART = ".visually-hidden, .plot, .skip, [hidden], table.stack thead, .code, pre, textarea, .diff, svg, option";
  const found = [];
  const told = (node) => `${node.tagName}.${node.className}: ${node.textContent.trim().slice(0, 60)}`;
  const shown = (node) => node.getClientRects().length > 0 && !node.closest(APART);
  const width = document.documentElement.clientWidth;
  const pen = document.createElement("canvas").getContext("2d");
  const scrolls = (node) => {
    for (let at = node; at && at !== document.body; at = at.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true;
    }
    return false;
  };
  for (const node of document.querySelectorAll("body *")) {
    if (!(node instanceof HTMLElement) || !shown(node)) continue;
    const style = getComputedStyle(node);
    const cuts = ["hidden", "clip"].includes(style.overflowX);
    if (cuts && node.scrollWidth > node.clientWidth + 1) found.push(`cut off: ${told(node)}`);
    const box = node.getBoundingClientRect();
    if ((box.right > width + 1 || box.left < -1) && !scrolls(node)) found.push(`beyond the edge: ${told(node)}`);
    if (node.matches("select")) {
      pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
      const text = node.selectedOptions[0]?.textContent.trim() ?? "";
      const room = node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - ARROW;
      if (pen.measureText(text).width > room + 1) found.push(`cut off: ${node.id}: ${text}`);
    }
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const parent = text.parentElement;
    if (!parent || !shown(parent) || parent.closest("script, style, noscript")) continue;
    for (const word of text.data.matchAll(/[\p{L}\p{N}]{2,}/gu)) {
      if (word[0].length > LONGEST || /^[0-9a-f]{8,}$/.test(word[0])) continue;
      const whole = text.data.slice(0, word.index).match(/\S*$/)[0] + text.data.slice(word.index).match(/^\S*/)[0];
      if (/[<>\\…]/.test(whole)) continue;
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const drawn = [...range.getClientRects()].filter((each) => each.width > 0);
      if (new Set(drawn.map((each) => Math.round(each.top))).size > 1) found.push(`broken: ${word[0]} in ${told(parent)}`);
    }
  }
  return found;
}
