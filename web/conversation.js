/**
 * One conversation, over as many calls as it takes. Owns the model, the captions and the settings, rebuilds the
 * server's history after a lost call, and tells of every change. Knows no element but the one that plays.
 */

import { CallError } from "./advice.js";
import { caption, heard, questions } from "./events.js";
import { packed, settled, unpacked } from "./history.js";
import { Inside } from "./inside.js";
import { Line } from "./line.js";
import { Microphone, useSpeaker } from "./microphone.js";
import { Retelling } from "./retelling.js";
import { keep, recalled, sessionUpdate, voicesIn } from "./settings.js";
import { Sound, VOICE } from "./sound.js";
import { START, canInterrupt, isLive, isOpen, isRunning, next } from "./state.js";
import { pictureMessage, textMessage, worded } from "./wishes.js";

const TRANSCRIPT = "voice-agent-transcript";
const LIVE = "voice-agent-live"; // a call was up when the page went away
const KEPT_READINGS = 50;
const LAST_WORDS_MS = 180; // sound on its way when push-to-talk is let go
const SHORTEST_TALK_MS = 300;
const UNEXPECTED = "The call could not be set up. Start again.";

/**
 * @typedef {object} Parts
 * @property {import("./peer.js").Server} server
 * @property {HTMLAudioElement} speaker
 * @property {import("./settings.js").Keeper} tab  kept as long as this tab
 * @property {import("./settings.js").Keeper} ever  kept for the next visit
 * @property {() => void} onChange  something is to be shown anew
 */

export class Conversation {
  model = START;
  /** @type {readonly import("./events.js").Caption[]} */
  captions;
  /** @type {import("./latency.js").Reading[]} */
  readings = [];
  /** @type {import("./latency.js").Link|null} */
  link = null;
  /** @type {{id: string, label: string}[]} */
  voices = [];
  /** @type {any} */
  session = null; // as the server says it is
  /** @type {any} */
  turnDetection = null; // the server's own kind, while push-to-talk is on
  needsKey = false;
  replying = false; // a response is being written
  retelling = new Retelling();
  talkedMs = 0;
  sound = new Sound();
  /** @type {AbortController|null} */
  running = null; // from start to stop, over all calls
  /** @type {Inside|null} */
  inside = null;

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    this.captions = unpacked(parts.tab.getItem(TRANSCRIPT));
    this.settings = recalled(parts.ever);
    this.microphone = new Microphone(
      (stream) => this.useStream(stream),
      (message) => this.tell({ type: "microphone", message }),
    );
    this.microphone.deviceId = this.settings.microphone;
    this.line = new Line({
      server: parts.server,
      speaker: parts.speaker,
      microphone: () => this.microphone.stream,
      tell: (signal) => this.tell(signal),
      onCall: (call) => (call ? this.begin(call) : this.end()),
      onEvent: (event) => this.hear(event),
      onEnd: (error) => this.fail(error),
    });
    this.sound.onVoice = () => this.model.state === "speaking" && this.inside?.wake();
    this.tell({ type: "pushToTalk", on: this.settings.pushToTalk });
  }

  /** @param {import("./state.js").Signal} signal */
  tell(signal) {
    const before = this.model;
    this.model = next(before, signal);
    if (this.model === before) return;
    this.microphone.enable(isOpen(this.model));
    this.parts.onChange();
  }

  /** Whether the page went away while a call was up, and so should take it up again. */
  get wasLive() {
    return this.parts.tab.getItem(LIVE) !== null;
  }

  /** Ask what the server is and whether it is ready; a server that does not answer is a state, no error. */
  async look() {
    try {
      await this.line.learn();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.tell({ type: "readiness", server: "gone" });
    }
  }

  // from start to stop

  /**
   * Start a conversation, or go on with the one whose captions are there. Must run inside the click.
   * @param {{fresh: boolean}} how
   */
  async start({ fresh }) {
    if (isRunning(this.model)) return;
    this.sound.unlock(this.parts.speaker);
    this.needsKey = false;
    if (fresh) {
      this.readings = [];
      this.write([]);
    }
    const { signal } = (this.running = new AbortController());
    this.tell({ type: "start" });
    try {
      await this.microphone.open();
      signal.throwIfAborted();
      this.tell({ type: "allowed" });
      await this.line.open(signal);
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    }
  }

  /** End the call; the captions stay. */
  stop() {
    this.parts.tab.removeItem(LIVE);
    this.leave();
    this.tell({ type: "stop" });
  }

  /** Let go of everything, because the page goes away or the call is over. */
  leave() {
    this.write(settled(this.captions));
    this.line.close(true);
    this.running?.abort();
    this.running = null;
    this.microphone.close();
    this.parts.speaker.srcObject = null;
  }

  /** @param {unknown} error */
  fail(error) {
    this.parts.tab.removeItem(LIVE);
    this.needsKey = error instanceof CallError && error.needsKey;
    this.leave();
    this.tell({ type: "failed", message: error instanceof CallError ? error.message : UNEXPECTED });
  }

  /** @param {import("./peer.js").OpenCall} call */
  begin(call) {
    this.parts.tab.setItem(LIVE, "yes");
    this.tell({ type: "connected" });
    useSpeaker(this.parts.speaker, this.settings.speaker);
    this.sound.listen("agent", call.voice);
    this.loadVoices();
    const { signal } = /** @type {AbortController} */ (this.running);
    this.inside = new Inside({
      server: this.parts.server,
      call,
      sound: this.sound,
      now: () => performance.now(),
      pauseMs: () => this.pauseMs(),
      onInside: (inside) => this.see(inside),
      onReading: (reading) => this.show({ readings: [...this.readings, reading].slice(-KEPT_READINGS) }),
      onLink: (link) => this.show({ link }),
      onSilence: () => this.line.lost("network", signal),
    });
    this.inside.follow();
  }

  end() {
    this.inside?.stop();
    this.inside = null;
    this.link = null;
    this.replying = false;
    this.sound.listen("agent", null);
    this.write(settled(this.captions));
  }

  // what the server says

  /** @param {any} event */
  hear(event) {
    if (event.type === "session.created") this.greet(event.session);
    if (event.type === "session.updated") this.session = event.session;
    if (event.type === "response.created") this.replying = true;
    if (event.type === "response.done") this.replying = false;
    this.inside?.take(event);
    const { unwanted, send } = this.retelling.take(event);
    for (const wish of send) this.send(wish);
    if (unwanted) return;
    const captions = caption(this.captions, event);
    if (captions !== this.captions) this.write(captions, !event.type.endsWith(".delta"));
    this.tell({ type: "server", event: worded(event) });
    for (const question of questions(event)) this.line.call?.send(question);
    this.parts.onChange();
  }

  /**
   * Tell a new session what the person chose and what was said before.
   * @param {any} session
   */
  greet(session) {
    this.session = session;
    this.turnDetection = session.audio?.input?.turn_detection ?? { type: "semantic_vad" };
    this.send(sessionUpdate(this.settings, null));
    for (const event of this.retelling.begin(this.captions)) this.send(event);
  }

  /** Often while there is something to see: a hold lasts a few tenths of a second. */
  pauseMs() {
    if (this.model.state === "held") return 100;
    if (this.model.state !== "speaking") return 2000;
    return this.sound.levels.user >= VOICE ? 100 : 300;
  }

  /** @param {any} inside  the timeline */
  see(inside) {
    this.tell({ type: "inside", state: inside.state });
    const [replyId] = inside.in_flight?.playout ?? [];
    const captions = replyId ? heard(this.captions, replyId, inside.heard_text) : this.captions;
    if (captions !== this.captions) this.write(captions, false);
  }

  /**
   * @param {readonly import("./events.js").Caption[]} captions
   * @param {boolean} [keepNow]
   */
  write(captions, keepNow = true) {
    if (keepNow) this.parts.tab.setItem(TRANSCRIPT, packed(captions));
    this.show({ captions });
  }

  /** @param {Partial<Conversation>} part */
  show(part) {
    Object.assign(this, part);
    this.parts.onChange();
  }

  async loadVoices() {
    const path = this.line.facts.voices_path;
    if (!path || this.voices.length > 0) return;
    const body = await this.parts.server.json(path).catch(() => null);
    this.show({ voices: voicesIn(body) });
  }

  // what the person does

  /** A click: what the browser had silenced may sound now. */
  listenAgain() {
    if (!isRunning(this.model)) return;
    this.sound.resume();
    if (!this.parts.speaker.paused) return;
    this.parts.speaker.play().then(
      () => this.tell({ type: "notice", message: "" }),
      () => {},
    );
  }

  /** @param {object} event */
  send(event) {
    this.line.call?.send(event);
  }

  /** @param {string} text */
  sendText(text) {
    if (!isLive(this.model)) return;
    this.interrupt();
    this.send(textMessage(text));
    this.send({ type: "response.create" });
    this.inside?.asked();
  }

  /**
   * Show the agent a picture; the question about it comes next, spoken or typed.
   * @param {string} url  a data URL
   */
  sendPicture(url) {
    this.send(pictureMessage(url));
  }

  /** Stop the reply that is being thought or spoken. */
  interrupt() {
    if (!canInterrupt(this.model)) return;
    if (this.replying) this.send({ type: "response.cancel" });
    this.send({ type: "output_audio_buffer.clear" });
  }

  /** @param {boolean} on */
  setMuted(on) {
    this.tell({ type: "mute", on });
  }

  /** @param {boolean} on  the push-to-talk key is down */
  talk(on) {
    if (on === this.model.talking || !this.model.pushToTalk || !isLive(this.model)) return;
    if (on && this.model.muted) {
      this.tell({ type: "notice", message: "Your microphone is muted: press Mute again, then hold to talk." });
    } else if (on) {
      this.interrupt();
      this.send({ type: "input_audio_buffer.clear" });
      this.talkedMs = performance.now();
      this.tell({ type: "talk", on });
    } else if (performance.now() - this.talkedMs < SHORTEST_TALK_MS) {
      this.tell({ type: "talk", on });
      this.tell({ type: "notice", message: "Hold the button, or the space bar, for as long as you speak." });
    } else {
      setTimeout(() => this.endTalk(), LAST_WORDS_MS);
    }
  }

  /** The last words have left: let the agent answer. */
  endTalk() {
    if (!this.model.talking) return;
    this.tell({ type: "talk", on: false });
    this.send({ type: "input_audio_buffer.commit" });
    this.send({ type: "response.create" });
    this.inside?.asked();
  }

  /**
   * Change settings; a running call follows at once.
   * @param {Partial<import("./settings.js").Settings>} part
   */
  choose(part) {
    this.settings = { ...this.settings, ...part };
    keep(this.parts.ever, this.settings);
    if (part.pushToTalk !== undefined) this.tell({ type: "pushToTalk", on: part.pushToTalk });
    const isForSession = (part.voice ?? part.latencyFirst ?? part.pushToTalk) !== undefined;
    if (isForSession) this.send(sessionUpdate(this.settings, this.turnDetection));
    if (part.speaker !== undefined) useSpeaker(this.parts.speaker, part.speaker);
    if (part.microphone !== undefined) this.microphone.choose(part.microphone);
    this.parts.onChange();
  }

  /** @param {MediaStream|null} stream */
  useStream(stream) {
    this.sound.listen("user", stream);
    this.line.call?.useMicrophone(stream?.getAudioTracks()[0] ?? null);
    this.parts.onChange();
  }
}
