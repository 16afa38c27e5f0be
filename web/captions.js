/**
 * The log of captions in the DOM: what was heard dark, what is to come faint, what was cut struck out.
 *
 * @typedef {import("./events.js").Caption} Caption
 */

/** One node for each caption, changed only where the caption is another object. */
export class Captions {
  /** @type {Map<string, {caption: Caption, node: HTMLElement}>} */
  shown = new Map();
  /** @type {readonly Caption[]} */
  captions = [];

  /**
   * @param {HTMLElement} log
   * @param {HTMLElement} [empty]  what stands there before the first
   */
  constructor(log, empty) {
    this.log = log;
    this.empty = empty;
  }

  /**
   * Bring the log to these captions. A caption that became final is put in anew, so that a screen reader, which
   * is told of additions only, reads it once and whole.
   * @param {readonly Caption[]} captions
   */
  show(captions) {
    if (captions === this.captions) return;
    this.captions = captions;
    const { log } = this;
    const wasAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    if (this.empty) this.empty.hidden = captions.length > 0;
    const kept = new Set(captions.map((one) => one.id));
    for (const [id, { node }] of this.shown) {
      if (kept.has(id)) continue;
      node.remove();
      this.shown.delete(id);
    }
    for (const caption of captions) this.showOne(caption);
    if (wasAtEnd) log.scrollTop = log.scrollHeight;
  }

  /** @param {Caption} caption */
  showOne(caption) {
    const old = this.shown.get(caption.id);
    if (old?.caption === caption) return;
    let node = old?.node;
    if (!old || !node || old.caption.final !== caption.final) {
      node = document.createElement("p");
      if (old) old.node.replaceWith(node);
      else this.log.append(node);
    }
    fill(node, caption);
    this.shown.set(caption.id, { caption, node });
  }
}

/**
 * @param {HTMLElement} node
 * @param {Caption} caption
 */
function fill(node, { who, text, heard, final, cut }) {
  node.className = `caption ${who}`;
  node.classList.toggle("partial", !final);
  node.classList.toggle("cut", cut);
  node.ariaHidden = final ? null : "true";
  const [said, rest] = [text.slice(0, heard), text.slice(heard)];
  const parts = [piece("span", "unseen", who === "user" ? "You: " : "Agent: "), piece("span", "words", said)];
  if (text === "") parts.push(piece("span", "waiting", "…"));
  if (rest) parts.push(piece(cut ? "s" : "span", "rest", rest));
  if (cut) parts.push(piece("span", "mark", " interrupted"));
  node.replaceChildren(...parts);
}

/**
 * @param {string} tag
 * @param {string} className
 * @param {string} text
 * @returns {HTMLElement}
 */
function piece(tag, className, text) {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}
