/**
 * The page's DOM, and nothing else: shows what it is told, tells what was clicked.
 *
 * @typedef {import("./events.js").Caption} Caption
 * @typedef {import("./state.js").Model} Model
 */

import { WORDS, isLive } from "./state.js";

const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** The elements that change, and the captions that are shown. */
export class View {
  constructor() {
    this.speaker = /** @type {HTMLAudioElement} */ (element("speaker"));
    this.button = /** @type {HTMLButtonElement} */ (element("toggle"));
    this.keyForm = /** @type {HTMLFormElement} */ (element("key-form"));
    this.keyInput = /** @type {HTMLInputElement} */ (element("key"));
    /** @type {Map<string, {caption: Caption, node: HTMLElement}>} */
    this.shown = new Map();
  }

  /** @param {Model} model */
  showState({ state, message }) {
    const running = isLive(state) || state === "connecting";
    document.body.dataset.state = state;
    element("state").textContent = WORDS[state];
    element("toggle-word").textContent = running ? "Stop" : "Start";
    element("hint").hidden = running || message !== "" || this.shown.size > 0;
    const notice = element("message");
    if (notice.textContent !== message) notice.textContent = message;
    notice.hidden = message === "";
  }

  /** @param {boolean} wanted */
  showKeyForm(wanted) {
    this.keyForm.hidden = !wanted;
    if (wanted) this.keyInput.focus();
  }

  /** @param {string} name */
  showModel(name) {
    element("model").textContent = name;
  }

  /**
   * Bring the log to these captions. A caption that became final is put in anew, so that a screen reader, which
   * is told of additions only, reads it once and whole.
   * @param {readonly Caption[]} captions
   */
  showCaptions(captions) {
    const log = element("log");
    const wasAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    const kept = new Set(captions.map((one) => one.id));
    for (const [id, { node }] of this.shown) {
      if (!kept.has(id)) {
        node.remove();
        this.shown.delete(id);
      }
    }
    for (const caption of captions) this.showCaption(log, caption);
    if (wasAtEnd) log.scrollTop = log.scrollHeight;
  }

  /**
   * @param {HTMLElement} log
   * @param {Caption} caption
   */
  showCaption(log, caption) {
    const old = this.shown.get(caption.id);
    if (old?.caption === caption) return;
    if (old && old.caption.final === caption.final) {
      fill(old.node, caption);
      this.shown.set(caption.id, { caption, node: old.node });
      return;
    }
    const node = fill(document.createElement("p"), caption);
    if (old) old.node.replaceWith(node);
    else log.append(node);
    this.shown.set(caption.id, { caption, node });
  }

  /**
   * @param {number} user  0 to 1
   * @param {number} agent  0 to 1
   */
  showLevels(user, agent) {
    document.body.style.setProperty("--user-level", user.toFixed(3));
    document.body.style.setProperty("--agent-level", agent.toFixed(3));
  }
}

/**
 * @param {HTMLElement} node
 * @param {Caption} caption
 * @returns {HTMLElement}
 */
function fill(node, { who, text, final, cut }) {
  node.className = `caption ${who}`;
  node.classList.toggle("partial", !final);
  node.classList.toggle("cut", cut);
  node.ariaHidden = final ? null : "true";
  const speaker = document.createElement("span");
  speaker.className = "who";
  speaker.textContent = who === "user" ? "You" : "Agent";
  const words = document.createElement("span");
  words.className = "words";
  words.textContent = text === "" ? "…" : cut ? `${text} —` : text;
  node.replaceChildren(speaker, " ", words);
  return node;
}
