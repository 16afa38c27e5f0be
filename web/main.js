/**
 * The page's wiring: clicks, keys and pictures into the conversation, its changes into the view.
 */

import { Conversation } from "./conversation.js";
import { asText } from "./history.js";
import { isAllowed } from "./microphone.js";
import { Server } from "./peer.js";
import { smallPicture } from "./picture.js";
import { SettingsView } from "./settings_view.js";
import { isLive, isRunning } from "./state.js";
import { View } from "./view.js";

const KEY_NAME = "voice-agent-key"; // for this tab only
const LOOK_EVERY_MS = 3000; // at a server that is not ready
const EVENT_BYTES = 500; // of an event around its picture

const view = new View();
const server = new Server(new URL("./", import.meta.url), () => sessionStorage.getItem(KEY_NAME) ?? "");
const conversation = new Conversation({
  server,
  speaker: view.speaker,
  tab: sessionStorage,
  ever: localStorage,
  onChange: changed,
});
new SettingsView(conversation).dialog.addEventListener("close", () => {
  if (conversation.model.pushToTalk && isLive(conversation.model)) view.talk.focus(); // the space bar is for talking now
});
let isStale = false;

/** Show what changed, once for all changes of one step. */
function changed() {
  if (isStale) return;
  isStale = true;
  queueMicrotask(() => {
    isStale = false;
    view.show(conversation);
    drawLevels();
  });
}

let isDrawing = false;

/** Keep the meters going while there is a call. */
function drawLevels() {
  if (isDrawing) return;
  isDrawing = true;
  const draw = () => {
    const { user, agent } = conversation.sound.levels;
    isDrawing = isRunning(conversation.model);
    view.showLevels(isDrawing ? user : 0, isDrawing ? agent : 0);
    if (isDrawing) requestAnimationFrame(draw);
  };
  draw();
}

function toggle() {
  if (isRunning(conversation.model)) conversation.stop();
  else conversation.start({ fresh: false });
}

/** Look for the server until it is ready, while nobody calls. */
async function look() {
  if (!isRunning(conversation.model)) await conversation.look();
  if (conversation.model.server !== "ready") setTimeout(look, LOOK_EVERY_MS);
}

/** @param {Blob} file */
async function showPicture(file) {
  if (!isLive(conversation.model)) return say("Start the call first, then show the picture again.");
  try {
    const maxBytes = (conversation.line.call?.maxMessageBytes ?? 0) - EVENT_BYTES;
    conversation.sendPicture(await smallPicture(file, Math.min(maxBytes, 60_000)));
  } catch (error) {
    if (!(error instanceof DOMException || error instanceof RangeError)) throw error;
    say("This file is not a picture that can be shown. Take another one.");
  }
}

/** @param {string} message */
function say(message) {
  conversation.tell({ type: "notice", message });
}

/** @param {DataTransfer|null} data  of a paste or a drop; text in it is nobody's business here */
function showFirstOf(data) {
  const files = [...(data?.files ?? [])];
  const file = files.find(({ type }) => type.startsWith("image/")) ?? files[0];
  if (file) showPicture(file);
}

function download() {
  const url = URL.createObjectURL(new Blob([asText(conversation.captions, document.title, new Date())]));
  const link = document.createElement("a");
  link.href = url;
  link.download = "conversation.txt";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** @type {Element|null} */
let clicked = null; // has the focus for that, and nobody means it any more

/**
 * Whether a key belongs to something else: a field, the open dialog, a button that was reached by keyboard.
 * @param {KeyboardEvent} event
 * @returns {boolean}
 */
function isTaken({ target }) {
  if (!(target instanceof Element) || target === view.talk) return false;
  const taker = target.closest("input, select, summary, dialog, button");
  return taker !== null && taker !== clicked;
}

view.toggle.addEventListener("click", toggle);
view.mute.addEventListener("click", () => conversation.setMuted(!conversation.model.muted));
view.interrupt.addEventListener("click", () => conversation.interrupt());
view.fresh.addEventListener("click", () => conversation.start({ fresh: true }));
view.download.addEventListener("click", download);
view.picture.addEventListener("click", () => view.pictureFile.click());
view.pictureFile.addEventListener("change", () => {
  const file = view.pictureFile.files?.[0];
  if (file) showPicture(file);
  view.pictureFile.value = "";
});
view.composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = view.text.value.trim();
  if (!isLive(conversation.model)) return;
  if (text) conversation.sendText(text);
  view.text.value = "";
});
view.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_NAME, view.key.value.trim());
  conversation.start({ fresh: false });
});

view.talk.addEventListener("pointerdown", (event) => {
  view.talk.setPointerCapture(event.pointerId);
  conversation.talk(true);
});
for (const name of ["pointerup", "pointercancel", "blur"]) view.talk.addEventListener(name, () => conversation.talk(false));
view.talk.addEventListener("contextmenu", (event) => event.preventDefault()); // a long press is no wish for a menu

addEventListener("pointerdown", ({ target }) => {
  clicked = target instanceof Element ? target.closest("button") : null;
});
addEventListener("keydown", (event) => {
  if (event.key === "Tab") clicked = null;
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) conversation.interrupt();
  const isTalkKey = event.key === " " && conversation.model.pushToTalk && isLive(conversation.model);
  if (!isTalkKey || isTaken(event)) return;
  event.preventDefault();
  conversation.talk(true);
});
addEventListener("keyup", (event) => {
  if (event.key !== " " || !conversation.model.talking) return;
  event.preventDefault(); // the button that has the focus was not meant
  conversation.talk(false);
});
addEventListener("blur", () => conversation.talk(false));

addEventListener("paste", (event) => showFirstOf(event.clipboardData));
addEventListener("dragover", (event) => {
  event.preventDefault();
  view.showDrop(isLive(conversation.model));
});
addEventListener("dragleave", () => view.showDrop(false));
addEventListener("drop", (event) => {
  event.preventDefault();
  view.showDrop(false);
  showFirstOf(event.dataTransfer);
});

// browsers refuse sound without a click, and a phone call puts it to sleep
for (const name of ["pointerdown", "keydown"]) addEventListener(name, () => conversation.listenAgain());
addEventListener("pagehide", () => conversation.leave());
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());

view.show(conversation);
look();
const [navigation] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
// a tab that was copied has the same storage, but nobody pressed anything there
if (conversation.wasLive && navigation?.type === "reload" && (await isAllowed())) conversation.start({ fresh: false });
