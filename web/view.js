/**
 * The page's DOM, and nothing else: shows what it is told, tells what was clicked.
 *
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./latency.js").Reading} Reading
 */

import { Captions } from "./captions.js";
import { median } from "./latency.js";
import { canInterrupt, isLive, isOpen, isRunning, whyNotReady, word } from "./state.js";

const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const button = (/** @type {string} */ id) => /** @type {HTMLButtonElement} */ (element(id));
const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ (element(id));
const seconds = (/** @type {number} */ ms) => `${(ms / 1000).toFixed(2)} s`;

/** The elements that change. */
export class View {
  speaker = /** @type {HTMLAudioElement} */ (element("speaker"));
  toggle = button("toggle");
  mute = button("mute");
  interrupt = button("interrupt");
  talk = button("talk");
  picture = button("picture");
  pictureFile = input("picture-file");
  composer = /** @type {HTMLFormElement} */ (element("composer"));
  text = input("text");
  keyForm = /** @type {HTMLFormElement} */ (element("key-form"));
  key = input("key");
  download = button("download");
  fresh = button("fresh");
  captions = new Captions(element("log"), element("empty"));
  /** @type {Reading|undefined} */
  reading;
  wasLive = false;

  constructor() {
    const latency = /** @type {HTMLDetailsElement} */ (element("latency"));
    latency.open = matchMedia("(min-width: 60rem) and (min-height: 40rem)").matches;
  }

  /** @param {Conversation} conversation */
  show(conversation) {
    const { model, captions } = conversation;
    const running = isRunning(model);
    this.showState(model);
    document.body.dataset.server = model.server;
    document.body.dataset.open = String(isOpen(model) && model.microphone === "");
    write(element("toggle-word"), running ? "End" : captions.length > 0 ? "Continue" : "Start");
    const notice = noticeOf(model);
    this.showNotice(notice);
    this.showKeyForm(conversation.needsKey && !running);
    element("explain").hidden = running || notice !== "" || captions.length > 0;
    this.showControls(model);
    this.captions.show(captions);
    this.showReadings(conversation.readings);
    this.showLine(conversation.link);
    this.download.hidden = captions.length === 0;
    this.fresh.hidden = captions.length === 0 || running;
    if (conversation.line.facts) this.showModel(conversation.line.facts.model);
  }

  /**
   * The turns of a call are not read out: who hears the call hears them, and the reader would talk into the microphone.
   * @param {import("./state.js").Model} model
   */
  showState(model) {
    const { dataset } = document.body;
    element("pill").ariaLive = this.wasLive && isLive(model) ? "off" : "polite";
    this.wasLive = isLive(model);
    dataset.state = model.state;
    write(element("state"), word(model));
  }

  /** @param {string} message */
  showNotice(message) {
    const notice = element("message");
    write(notice, message);
    notice.hidden = message === "";
  }

  /** @param {boolean} wanted */
  showKeyForm(wanted) {
    if (this.keyForm.hidden === !wanted) return;
    this.keyForm.hidden = !wanted;
    if (wanted) this.key.focus();
  }

  /** @param {import("./state.js").Model} model */
  showControls(model) {
    const live = isLive(model);
    element("live").hidden = !live && model.state !== "reconnecting";
    this.mute.ariaPressed = String(model.muted);
    write(/** @type {HTMLElement} */ (this.mute.querySelector("span")), model.muted ? "Muted" : "Mute");
    this.interrupt.ariaDisabled = String(!canInterrupt(model)); // not disabled: it would lose the focus when pressed
    this.talk.hidden = !model.pushToTalk;
    this.talk.ariaPressed = String(model.talking);
    write(this.talk, model.talking ? "Let go to send" : "Hold to talk");
    this.text.disabled = !isRunning(model); // what is being typed while a call is taken up again is kept
    for (const one of [this.picture, button("send")]) one.disabled = !live;
  }

  /** @param {string} name */
  showModel(name) {
    write(element("model"), name);
    if (document.title !== name) document.title = name;
  }

  /** @param {readonly Reading[]} readings */
  showReadings(readings) {
    const last = readings.at(-1);
    element("latency").hidden = !last;
    if (!last || last === this.reading) return;
    this.reading = last;
    write(element("latency-total"), seconds(last.totalMs));
    write(element("latency-where"), last.atEar ? "from your last word to your ear" : "within the server");
    const many = readings.length === 1 ? "" : `Median of ${readings.length} turns ${seconds(median(readings) ?? 0)}`;
    write(element("latency-median"), many);
    element("latency-bar").replaceChildren(...last.parts.map(({ ms }, n) => bar(ms, n)));
    element("latency-parts").replaceChildren(...last.parts.flatMap(({ name, ms }, n) => row(name, ms, n)));
  }

  /** @param {import("./latency.js").Link|null} link */
  showLine(link) {
    const figures = [
      link?.roundTripMs != null && `Round trip ${Math.round(link.roundTripMs)} ms`,
      link?.jitterMs != null && `jitter ${link.jitterMs.toFixed(1)} ms`,
      link?.lossShare != null && `loss ${(100 * link.lossShare).toFixed(1)} %`,
      link?.relayed && "relayed",
    ];
    write(element("line"), figures.filter(Boolean).join(" · "));
  }

  /**
   * @param {number} user  0 to 1
   * @param {number} agent  0 to 1
   */
  showLevels(user, agent) {
    document.body.style.setProperty("--user-level", user.toFixed(3));
    document.body.style.setProperty("--agent-level", agent.toFixed(3));
  }

  /** @param {boolean} over  something that may be a picture is dragged over the page */
  showDrop(over) {
    document.body.classList.toggle("dropping", over);
  }
}

/**
 * The one thing that is most worth saying.
 * @param {import("./state.js").Model} model
 * @returns {string}
 */
function noticeOf(model) {
  if (model.message) return model.message;
  if (isLive(model)) return model.microphone;
  if (model.state === "asking") return "Your browser asks for the microphone now: choose “Allow”.";
  if (model.state !== "idle") return "";
  const why = whyNotReady(model.server, model.reason);
  if (why) return `${why} ${model.server === "starting" ? "You can press Start already." : "This page keeps looking."}`;
  return model.server === "gone" ? "The server does not answer. Check that it is running; this page keeps looking." : "";
}

/**
 * Change the text only if it is another: a screen reader reads again what is set again.
 * @param {HTMLElement} node
 * @param {string} text
 */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {number} ms
 * @param {number} n
 * @returns {HTMLElement}
 */
function bar(ms, n) {
  const node = document.createElement("span");
  node.dataset.part = String(n % 8);
  node.style.flexGrow = String(ms);
  return node;
}

/**
 * @param {string} name
 * @param {number} ms
 * @param {number} n
 * @returns {HTMLElement[]}
 */
function row(name, ms, n) {
  const term = document.createElement("dt");
  term.dataset.part = String(n % 8);
  term.textContent = name;
  const value = document.createElement("dd");
  value.textContent = `${Math.round(ms)} ms`;
  return [term, value];
}
