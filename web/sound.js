/**
 * The page's ears: how loud both voices are, for the eye and for measuring. Only taps the sound; playing it is the
 * audio element's business, so that the browser's echo canceller knows it.
 */

import { Voice } from "./latency.js";

const FLOOR_DB = -60;
const CEILING_DB = -12;
const FALL = 0.25;
export const VOICE = 0.3; // a level that may be speech

const NOTICED_MS = 1000; // a server tells of speech so long after a short word was over, at most

/**
 * @typedef {object} Question  what a reply answers
 * @property {number} atMs  when it was typed, or when the server told that it hears speech
 * @property {boolean} spoken
 */

/**
 * Loudness on a scale that follows the ear: 0 at the floor of a quiet room, 1 at loud speech.
 * @param {number} db
 * @returns {number}
 */
export function loudness(db) {
  return Math.min(1, Math.max(0, (db - FLOOR_DB) / (CEILING_DB - FLOOR_DB)));
}

/**
 * Rise at once, fall slowly: one frame of a meter.
 * @param {number} shown
 * @param {number} measured
 * @returns {number}
 */
export function eased(shown, measured) {
  return measured > shown ? measured : shown + (measured - shown) * FALL;
}

/** Both voices of a call on one audio clock. `unlock` must run inside the click, before anything is awaited. */
export class Sound {
  /** @type {AudioContext|null} */
  context = null;
  /** @type {Promise<unknown>|null} */
  loading = null;
  user = new Voice();
  agent = new Voice();
  levels = { user: 0, agent: 0 };
  /** @type {() => void} */
  onVoice = () => {}; // the user has become loud
  /** @type {Map<string, () => void>} */
  taps = new Map();

  /**
   * Let sound out: the context runs and the element plays, both by this click.
   * @param {HTMLAudioElement} speaker
   */
  unlock(speaker) {
    this.context ??= new AudioContext();
    this.loading ??= this.context.audioWorklet?.addModule(new URL("./ear.js", import.meta.url)).catch(() => {});
    this.resume();
    speaker.srcObject ??= this.context.createMediaStreamDestination().stream;
    speaker.play().catch(() => {}); // ended by the next source; the real one plays again
  }

  /** Wake the context up again; a phone call or Siri may have put it to sleep. */
  resume() {
    if (this.context && this.context.state !== "running") this.context.resume().catch(() => {});
  }

  /** @returns {number}  ms of the audio clock; 0 before the first click */
  now() {
    return 1000 * (this.context?.currentTime ?? 0);
  }

  /**
   * Listen to one side, instead of what was listened to there before; null to stop.
   * @param {"user"|"agent"} who
   * @param {MediaStream|null} stream
   */
  async listen(who, stream) {
    this.taps.get(who)?.();
    this.taps.delete(who);
    this.levels[who] = 0;
    this[who] = new Voice();
    const context = this.context;
    await this.loading;
    if (!stream || !context?.audioWorklet || this.taps.has(who) || !stream.active) return;
    const source = context.createMediaStreamSource(stream);
    const ear = new AudioWorkletNode(context, "ear", { numberOfOutputs: 0 });
    ear.port.onmessage = ({ data }) => this.take(who, data);
    source.connect(ear);
    this.taps.set(who, () => source.disconnect());
  }

  /** Stop listening to both. */
  deafen() {
    this.listen("user", null);
    this.listen("agent", null);
  }

  /**
   * @param {"user"|"agent"} who
   * @param {{endMs: number, levels: number[]}} heard
   */
  take(who, { endMs, levels }) {
    const beginMs = endMs - 10 * levels.length;
    levels.forEach((db, n) => this[who].push(beginMs + 10 * (n + 1), db));
    const before = this.levels[who];
    this.levels[who] = eased(before, loudness(Math.max(...levels)));
    if (who === "user" && before < VOICE && this.levels.user >= VOICE) this.onVoice();
  }

  /**
   * From the end of a question to the first sound of the reply that was announced at `createdMs`, with what this
   * machine's sound output adds; null if one of the two was not heard here.
   * @param {number} createdMs
   * @param {Question} question
   * @returns {number|null}
   */
  untilHeard(createdMs, question) {
    const firstMs = this.agent.firstFrom(createdMs - 300);
    if (firstMs === null) return null;
    const lastMs = question.spoken
      ? this.user.lastBetween(question.atMs - NOTICED_MS, Math.min(firstMs, createdMs))
      : question.atMs;
    return lastMs === null ? null : firstMs - lastMs + 1000 * (this.context?.outputLatency || 0);
  }
}
