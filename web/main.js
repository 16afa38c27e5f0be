/**
 * The page's wiring: clicks and server events into the state machine, its state into the view, calls up and down.
 */

import { caption, questions } from "./events.js";
import { meter } from "./level.js";
import { CallError, openCall } from "./peer.js";
import { START, isLive, next } from "./state.js";
import { View } from "./view.js";

const KEY_NAME = "voice-agent-key"; // for this tab only
const view = new View();
let model = START;
/** @type {readonly import("./events.js").Caption[]} */
let captions = [];
/** @type {AbortController|null} */
let attempt = null;
/** @type {import("./peer.js").OpenCall|null} */
let call = null;
/** @type {AudioContext|null} */
let context = null;

/** @param {import("./state.js").Signal} signal */
function tell(signal) {
  model = next(model, signal);
  view.showState(model);
}

/** Must run inside the click, before anything is awaited: later, browsers refuse to make sound. */
function unlockSound() {
  context ??= new AudioContext();
  context.resume().catch(() => {});
  view.speaker.srcObject = context.createMediaStreamDestination().stream;
  view.speaker.play().catch(() => {}); // ended by the next source; the real one plays again
}

async function start() {
  unlockSound();
  captions = [];
  view.showCaptions(captions);
  view.showKeyForm(false);
  tell({ type: "start" });
  const mine = new AbortController();
  attempt = mine;
  /** @type {any[]} */
  const early = []; // events that come before `call` is there to answer with
  const onEvent = (/** @type {any} */ event) => (call ? take(event) : early.push(event));
  const onLost = (/** @type {string} */ message) => fail(mine, message);
  const key = sessionStorage.getItem(KEY_NAME) ?? "";
  try {
    const opened = await openCall({ key, speaker: view.speaker, onEvent, onLost, signal: mine.signal });
    if (mine.signal.aborted) return;
    call = opened;
    tell({ type: "connected" });
    early.splice(0).forEach(take);
    drawLevels(opened);
  } catch (error) {
    if (mine.signal.aborted) return;
    if (error instanceof CallError) view.showKeyForm(error.needsKey);
    fail(mine, error instanceof CallError ? error.message : "The call could not be set up. Start again.");
  }
}

function stop() {
  const mine = attempt;
  attempt = null;
  call?.close();
  call = null;
  mine?.abort();
  tell({ type: "stop" });
}

/**
 * @param {AbortController} mine
 * @param {string} message
 */
function fail(mine, message) {
  if (attempt !== mine) return;
  attempt = null;
  call?.close();
  call = null;
  tell({ type: "failed", message });
}

/** @param {any} event */
function take(event) {
  captions = caption(captions, event);
  view.showCaptions(captions);
  tell({ type: "server", event });
  for (const question of questions(event)) call?.send(question);
}

/** @param {import("./peer.js").OpenCall} opened */
function drawLevels(opened) {
  if (!context) return;
  const user = meter(context, opened.microphone);
  const agent = meter(context, opened.voice);
  const draw = () => {
    if (call !== opened) {
      user.stop();
      agent.stop();
      view.showLevels(0, 0);
      return;
    }
    view.showLevels(user.read(), agent.read());
    requestAnimationFrame(draw);
  };
  draw();
}

async function showModel() {
  const response = await fetch("/version").catch(() => null);
  if (!response?.ok) return;
  const { model: name } = await response.json();
  view.showModel(name);
  document.title = name;
}

view.button.addEventListener("click", () => (isLive(model.state) || model.state === "connecting" ? stop() : start()));
view.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_NAME, view.keyInput.value.trim());
  start();
});
addEventListener("pagehide", stop);
view.showState(model);
showModel();
