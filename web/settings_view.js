/**
 * The settings dialog: what can be chosen here and now, and what was.
 *
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {{id: string, label: string}} Choice
 */

import { listDevices } from "./microphone.js";

const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const select = (/** @type {string} */ id) => /** @type {HTMLSelectElement} */ (element(id));

export class SettingsView {
  dialog = /** @type {HTMLDialogElement} */ (element("settings"));
  microphone = select("choose-microphone");
  speaker = select("choose-speaker");
  voice = select("choose-voice");
  pushToTalk = /** @type {HTMLInputElement} */ (element("choose-talk"));
  modes = /** @type {NodeListOf<HTMLInputElement>} */ (this.dialog.querySelectorAll("[name=mode]"));

  /** @param {Conversation} conversation */
  constructor(conversation) {
    this.conversation = conversation;
    element("open-settings").addEventListener("click", () => this.open());
    const on = (/** @type {HTMLElement} */ node, /** @type {() => object} */ choice) =>
      node.addEventListener("change", () => conversation.choose(choice()));
    on(this.microphone, () => ({ microphone: this.microphone.value }));
    on(this.speaker, () => ({ speaker: this.speaker.value }));
    on(this.voice, () => ({ voice: this.voice.value }));
    on(this.pushToTalk, () => ({ pushToTalk: this.pushToTalk.checked }));
    for (const mode of this.modes) on(mode, () => ({ latencyFirst: mode.value === "fast" }));
    this.dialog.addEventListener("click", ({ target }) => target === this.dialog && this.dialog.close()); // beside it
    navigator.mediaDevices?.addEventListener?.("devicechange", () => this.dialog.open && this.fill());
  }

  open() {
    this.dialog.showModal();
    this.fill();
  }

  /** Show what there is now; device names are there only once the microphone was allowed. */
  async fill() {
    const { settings, session, voices } = this.conversation;
    const now = session?.audio?.output?.voice ?? "";
    const known = voices.length > 0 || !now ? voices : [{ id: now, label: now }];
    offer(this.voice, "The server’s own", known, settings.voice);
    const isFast = settings.latencyFirst ?? session?.latency_first ?? true;
    for (const mode of this.modes) mode.checked = (mode.value === "fast") === isFast;
    this.pushToTalk.checked = settings.pushToTalk;
    const { inputs, outputs } = await listDevices();
    offer(this.microphone, "The system’s own", inputs, settings.microphone);
    offer(this.speaker, "The system’s own", outputs, settings.speaker);
    element("speaker-row").hidden = outputs.length === 0;
  }
}

/**
 * @param {HTMLSelectElement} node
 * @param {string} first  the choice of not choosing
 * @param {readonly Choice[]} choices
 * @param {string} chosen
 */
function offer(node, first, choices, chosen) {
  const all = [{ id: "", label: first }, ...choices.filter(({ id }) => id !== "default" && id !== "")];
  node.replaceChildren(...all.map(({ id, label }) => new Option(label, id)));
  node.value = all.some(({ id }) => id === chosen) ? chosen : "";
}
