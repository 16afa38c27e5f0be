/**
 * The log of captions in the DOM: what was heard dark, what is to come faint, what was cut struck out.
 *
 * @typedef {import("./events.js").Caption} Caption
 */

const NEAR_PX = 48;
const HEARD_AT = 0.6; // of the log's height, from its top

/** One node for each caption, changed only where the caption is another object. */
export class Captions {
  /** @type {Map<string, {caption: Caption, node: HTMLElement}>} */
  shown = new Map();
  /** @type {readonly Caption[]} */
  captions = [];
  follows = true; // nobody has scrolled back to read

  /**
   * @param {HTMLElement} log
   * @param {HTMLElement} [empty]  what stands there before the first
   */
  constructor(log, empty) {
    this.log = log;
    this.empty = empty;
    log.addEventListener("scroll", () => {
      this.follows = log.scrollTop > this.newest() - NEAR_PX;
    });
    // a phone's keyboard and a turned phone change the log's size; scrolling by that is nobody's wish
    new ResizeObserver(() => this.follow()).observe(log);
  }

  /**
   * Bring the log to these captions. One that is over is put in anew, so that a screen reader, which is told of
   * additions only, reads it once and whole, and not over the agent's voice.
   * @param {readonly Caption[]} captions
   */
  show(captions) {
    if (captions === this.captions) return;
    this.captions = captions;
    if (this.empty) this.empty.hidden = captions.length > 0;
    const kept = new Set(captions.map((one) => one.id));
    for (const [id, { node }] of this.shown) {
      if (kept.has(id)) continue;
      node.remove();
      this.shown.delete(id);
    }
    for (const caption of captions) this.showOne(caption);
    this.follow();
  }

  /** Scroll to the newest words, unless somebody reads elsewhere. */
  follow() {
    if (this.follows) this.log.scrollTop = this.newest();
  }

  /**
   * Where to scroll: to the end, or to the words that are being heard while many more are to come.
   * @returns {number}
   */
  newest() {
    const { log } = this;
    const end = log.scrollHeight - log.clientHeight;
    const toCome = log.querySelector(":scope > :last-child > span.rest")?.getClientRects()[0];
    if (!toCome) return end;
    const down = toCome.bottom - log.getBoundingClientRect().top + log.scrollTop;
    return Math.max(0, Math.min(end, down - HEARD_AT * log.clientHeight));
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
  if (!rewrite(node, parts)) node.replaceChildren(...parts);
}

/**
 * Change the words of pieces that are there already: nothing is added, so nobody is told a corrected caption twice.
 * @param {HTMLElement} node
 * @param {HTMLElement[]} parts
 * @returns {boolean} whether the same pieces were there
 */
function rewrite({ children }, parts) {
  const texts = parts.map((part, i) => (children[i]?.className === part.className ? children[i].firstChild : null));
  if (children.length !== parts.length || texts.includes(null)) return false;
  parts.forEach(({ textContent }, i) => {
    const text = texts[i];
    if (text && text.nodeValue !== textContent) text.nodeValue = textContent;
  });
  return true;
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
