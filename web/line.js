/**
 * Keeps a call up: makes it, learns why it ended, makes it anew with growing pauses. Knows nothing of what is said on it.
 *
 * @typedef {object} Port  what it is handed, and whom it tells
 * @property {import("./peer.js").Server} server
 * @property {HTMLAudioElement} speaker
 * @property {() => MediaStream|null} microphone
 * @property {(signal: import("./state.js").Signal) => void} tell
 * @property {(call: import("./peer.js").OpenCall|null) => void} onCall  one is up, or the one there was is gone
 * @property {(event: any) => void} onEvent
 * @property {(error: unknown) => void} onEnd  the call is over and trying again is no use
 */

import { CallError, MAX_ATTEMPTS, endAdvice, retryDelay } from "./advice.js";
import { openCall } from "./peer.js";
import { whyNotReady } from "./state.js";

const NOT_READY_MS = 1000;
const ADVICE = / (Check|Try) .*/; // of an error that this page itself acts upon

export class Line {
  /** @type {import("./peer.js").OpenCall|null} */
  call = null;
  /** @type {any} */
  facts = null; // of page.json
  attempt = 0;
  /** @type {() => void} */
  hurry = () => {}; // try again now: the network is back

  /** @param {Port} port */
  constructor(port) {
    this.port = port;
    addEventListener("online", () => this.hurry());
  }

  /**
   * Ask the server what it is.
   * @returns {Promise<boolean>}  whether it is ready. Raises CallError
   */
  async learn() {
    this.facts = await this.port.server.json("page.json");
    const { ready, reasons, state } = this.facts;
    this.port.tell({ type: "readiness", server: state, reason: reasons.join("; ") });
    return ready;
  }

  /**
   * Make a call; raises CallError, or the signal's reason.
   * @param {AbortSignal} signal  ends everything that is done for this conversation
   * @param {{location: string, instance: string}|null} [before]  the call that this one takes the place of
   */
  async open(signal, before = null) {
    const { port } = this;
    await this.ready(signal);
    if (before) await this.retire(before);
    const stream = port.microphone();
    /** @type {any[]} */
    const early = []; // events that come before the call is there to answer on
    const call = await openCall({
      server: port.server,
      microphone: stream,
      speaker: port.speaker,
      signal,
      onEvent: (event) => (this.call && this.call === call ? port.onEvent(event) : early.push(event)),
      onLost: (how) => this.lost(how, signal),
      onSilent: () => port.tell({ type: "notice", message: "Click anywhere on this page to hear the agent." }),
    });
    if (signal.aborted) return call.close(true);
    this.call = call;
    this.attempt = 0;
    port.onCall(call);
    early.forEach((event) => port.onEvent(event));
    if (port.microphone() !== stream) await call.useMicrophone(port.microphone()?.getAudioTracks()[0] ?? null);
  }

  /**
   * End the call there is, if there is one.
   * @param {boolean} hangUp  tell the server, which may not know
   */
  close(hangUp) {
    const { call } = this;
    this.call = null;
    call?.close(hangUp);
    if (call) this.port.onCall(null);
  }

  /**
   * The call ended by itself: learn why, and get it back.
   * @param {"ended"|"network"} how
   * @param {AbortSignal} signal
   */
  async lost(how, signal) {
    if (signal.aborted || !this.call) return;
    const before = { location: this.call.location, instance: this.facts.instance };
    this.close(false);
    this.port.tell({ type: "lost", message: "The connection was lost. Trying to get it back…" });
    try {
      if (how === "ended") await this.askWhy(before.location);
      await this.reopen(signal, before);
    } catch (error) {
      if (!signal.aborted) this.port.onEnd(error);
    }
  }

  /**
   * Wait until the server is warm; it may be loading its models.
   * @param {AbortSignal} signal
   */
  async ready(signal) {
    while (!(await this.learn())) {
      const { reasons, state } = this.facts;
      this.port.tell({ type: "notice", message: `${whyNotReady(state, reasons.join("; "))} This page waits for it.` });
      await this.wait(NOT_READY_MS, signal);
    }
    signal.throwIfAborted();
  }

  /**
   * Free the seat of a call that the network took from us, if the server still holds it. Raises CallError if it was
   * ended on purpose meanwhile.
   * @param {{location: string, instance: string}} before
   */
  async retire({ location, instance }) {
    if (instance !== this.facts.instance) return; // another server process knows nothing of that call
    const reason = await this.askWhy(location);
    const { server } = this.port;
    if (reason === "") await server.request(location, { method: "DELETE" }).catch(() => {});
  }

  /**
   * Why the server ended a call, empty if it did not; raises CallError when going on is no use.
   * @param {string} location
   * @returns {Promise<string|undefined>}
   */
  async askWhy(location) {
    const inside = await this.port.server.json(`${location}/timeline`).catch(() => null);
    const advice = endAdvice(inside?.end_reason ?? "");
    if (advice) throw new CallError(advice);
    return inside?.end_reason;
  }

  /**
   * Try until it works, the person stops, or trying again is no use.
   * @param {AbortSignal} signal
   * @param {{location: string, instance: string}} before
   */
  async reopen(signal, before) {
    for (let retryMs = 0; ; ) {
      this.attempt += 1;
      await this.wait(retryMs || retryDelay(this.attempt, Math.random()), signal);
      try {
        return await this.open(signal, before);
      } catch (error) {
        const again = error instanceof CallError && error.retryMs !== null && this.attempt < MAX_ATTEMPTS;
        if (signal.aborted || !again) throw error;
        retryMs = error.retryMs ?? 0;
        this.port.tell({ type: "lost", message: `${error.message.replace(ADVICE, "")} Trying again…` });
      }
    }
  }

  /**
   * @param {number} ms
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  wait(ms, signal) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      this.hurry = resolve;
      signal.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(signal.reason);
      });
    });
  }
}
