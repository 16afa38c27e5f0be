/**
 * What the wire does not tell, asked beside the call: how far a reply was heard, whether it is held, how long each
 * stage took, how the line is. One loop for one call; it also notices a server that is gone before the network does.
 */

import { linkOf, reading } from "./latency.js";

const LINK_EVERY_MS = 2000;
const SETTLE_MS = 700; // the sound arrives after the event that announces it
const UNHEARD_MS = 3000; // on a busy machine, or a long line; later it cannot be told from another

/**
 * @typedef {object} Port  what the loop asks and tells
 * @property {import("./peer.js").Server} server
 * @property {import("./peer.js").OpenCall} call
 * @property {import("./sound.js").Sound} sound
 * @property {() => number} now  ms of a clock that always goes; the audio clock stands until the browser allows sound
 * @property {() => number} pauseMs  until it asks again
 * @property {(inside: any) => void} onInside
 * @property {(reading: import("./latency.js").Reading) => void} onReading
 * @property {(link: import("./latency.js").Link) => void} onLink
 * @property {() => void} onSilence  neither HTTP nor sound comes from the server any more
 */

/** Follows one call until `stop`. */
export class Inside {
  /** @param {Port} port */
  constructor(port) {
    this.port = port;
    this.over = new AbortController();
    /** @type {import("./sound.js").Question|null} */
    this.question = null; // that no reply has sounded for
    /** @type {{atMs: number, question: import("./sound.js").Question|null}} */
    this.created = { atMs: 0, question: null };
    /** @type {{replyId: string, createdMs: number, question: import("./sound.js").Question, startedMs: number}|null} */
    this.pending = null;
    this.received = -1;
    this.stuck = false;
    this.failures = 0;
    /** @type {() => void} */
    this.wake = () => {};
  }

  stop() {
    this.over.abort();
    this.wake();
  }

  /** A question was typed, or the push-to-talk key let go: the answer's time counts from here. */
  asked() {
    this.question = { atMs: this.port.sound.now(), spoken: false };
  }

  /** @param {any} event  a Realtime server event */
  take(event) {
    const nowMs = this.port.sound.now();
    if (event.type === "input_audio_buffer.speech_started") this.question = { atMs: nowMs, spoken: true };
    if (event.type === "response.created") this.created = { atMs: nowMs, question: this.question };
    if (event.type === "output_audio_buffer.started") this.started(event.response_id.replace(/^resp_/, ""));
  }

  /**
   * A reply sounds. One that nobody asked for, a greeting say, has no time to be measured from.
   * @param {string} replyId
   */
  started(replyId) {
    const { atMs, question } = this.created;
    if (this.question === question) this.question = null; // else a newer one waits already
    this.pending = question && { replyId, createdMs: atMs, question, startedMs: this.port.now() };
    this.wake();
  }

  /** Ask again and again; returns when the call is over. */
  async follow() {
    let linkMs = -Infinity;
    while (!this.over.signal.aborted) {
      await this.askTimeline();
      if (performance.now() - linkMs >= LINK_EVERY_MS) {
        linkMs = performance.now();
        await this.askLine();
      }
      await this.pause();
    }
  }

  /** @returns {Promise<void>} */
  pause() {
    return new Promise((resolve) => {
      if (this.over.signal.aborted) return resolve();
      this.wake = resolve;
      setTimeout(resolve, this.port.pauseMs());
    });
  }

  async askTimeline() {
    const { server, call } = this.port;
    const { signal } = this.over;
    try {
      const inside = await server.json(`${call.location}/timeline?turns=2`, { signal });
      if (signal.aborted) return;
      this.failures = 0;
      this.port.onInside(inside);
      this.read(inside);
    } catch {
      this.failures += 1; // gone for good, or for a moment: the line's figures decide
      if (!signal.aborted && this.failures > 1 && this.stuck) this.port.onSilence();
    }
  }

  /** @param {any} inside */
  read(inside) {
    const { pending } = this;
    const sinceMs = this.port.now() - (pending?.startedMs ?? 0);
    if (!pending || sinceMs < SETTLE_MS) return;
    const earMs = this.port.sound.untilHeard(pending.createdMs, pending.question);
    if (earMs === null && sinceMs < UNHEARD_MS) return;
    const turn = inside.turns?.findLast((/** @type {any} */ one) => one.reply_id === pending.replyId);
    const found = turn && reading(turn, earMs);
    if (found) this.port.onReading(found);
    this.pending = null;
  }

  async askLine() {
    const reports = [...(await this.port.call.stats())];
    if (this.over.signal.aborted) return;
    const received = reports.find(({ type }) => type === "inbound-rtp")?.packetsReceived ?? 0;
    this.stuck = received === this.received;
    this.received = received;
    this.port.onLink(linkOf(reports));
  }
}
