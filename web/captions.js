/**
 * The log of captions in the DOM: what was heard dark, what is to come faint, what was cut struck out.
 *
 * @typedef {import("./events.js").Caption} Caption
 */

const NEAR_END_PX = 48;

/** One node for each caption, changed only where the caption is another object. */
export class Captions {
  /** @type {Map<string, {caption: Caption, node: HTMLElement}>} */
  shown = new Map();
  /** @type {readonly Caption[]} */
  captions = [];
  atEnd = true; // nobody has scrolled back to read

  /**
   * @param {HTMLElement} log
   * @param {HTMLElement} [empty]  what stands there before the first
   */
  constructor(log, empty) {
    this.log = log;
    this.empty = empty;
    log.addEventListener("scroll", () => {
      this.atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
    });
    // a phone's keyboard and a turned phone make the log smaller; scrolling by that is nobody's wish
    new ResizeObserver(() => this.atEnd && this.toEnd()).observe(log);
  }

  /**
   * Bring the log to these captions. One that is over is put in anew, so that a screen reader, which is told of
   * additions only, reads it once and whole, and not over the agent's voice.
   * @param {readonly Caption[]} captions
   */
  show(captions) {
    if (captions === this.captions) return;
    this.captions = captions;
    const { atEnd } = this;
    if (this.empty) this.empty.hidden = captions.length > 0;
    const kept = new Set(captions.map((one) => one.id));
    for (const [id, { node }] of this.shown) {
      if (kept.has(id)) continue;
      node.remove();
      this.shown.delete(id);
    }
    for (const caption of captions) this.showOne(caption);
    if (atEnd) this.toEnd();
  }

  /** Scroll to the newest words. */
  toEnd() {
    this.log.scrollTop = this.log.scrollHeight;
    this.atEnd = true;
  }

  /** @param {Caption} caption */
  showOne(caption) {
    const old = this.shown.get(caption.id);
    if (old?.caption === caption) return;
    let node = old?.node;
    if (!old || !node || isOver(old.caption) !== isOver(caption)) {
      node = document.createElement("p");
      if (old) old.node.replaceWith(node);
      else this.log.append(node);
    }
    fill(node, caption);
    this.shown.set(caption.id, { caption, node });
  }
}

/**
 * Whether nothing of a caption changes any more: understood, or heard to its end, or cut.
 * @param {Caption} caption
 * @returns {boolean}
 */
function isOver({ text, heard, final, cut }) {
  return final && (cut || heard === text.length);
}

/**
 * @param {HTMLElement} node
 * @param {Caption} caption
 */
function fill(node, caption) {
  const { who, text, heard, final, cut } = caption;
  node.className = `caption ${who}`;
  node.classList.toggle("partial", !final);
  node.classList.toggle("cut", cut);
  node.ariaHidden = isOver(caption) ? null : "true";
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
