/**
 * One call: RTCPeerConnection, the data channel "oai-events", and the HTTP around them.
 * Speaks only the public protocol. Every failure becomes a CallError that says what to do.
 */

import { CallError, refusal } from "./advice.js";

const CALLS = "v1/realtime/calls";
const GATHERING_MS = 1500; // candidates that come later than this are not worth the wait
const CONNECTING_MS = 15_000;
const DISCONNECTED_MS = 5000; // a short loss of the network heals itself
const NO_SOUND = "No connection for sound could be made. A firewall or VPN may block it; try another network.";

/** The server's HTTP: requests that end in a CallError unless they are answered well. */
export class Server {
  /**
   * @param {URL} base
   * @param {() => string} key  the API key, may be empty
   */
  constructor(base, key) {
    this.base = base;
    this.key = key;
  }

  /**
   * @param {string} path
   * @param {RequestInit} [init]
   * @returns {Promise<Response>}
   */
  async request(path, init = {}) {
    const key = this.key();
    const headers = { ...(key ? { authorization: `Bearer ${key}` } : {}), ...init.headers };
    let response;
    try {
      response = await fetch(new URL(path, this.base), { ...init, headers });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      const message = "The server does not answer. Check that it is running, then start again.";
      throw new CallError(message, { retryMs: 0 });
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => null);
    const retryAfter = response.headers.get("retry-after");
    throw refusal(response.status, body?.error?.message ?? "", { retryAfter, key });
  }

  /**
   * @param {string} path
   * @param {RequestInit} [init]
   * @returns {Promise<any>}
   */
  async json(path, init) {
    return (await this.request(path, init)).json();
  }

  /**
   * End a call whose page goes away or whose person hung up; nobody waits for the answer.
   * @param {string} location
   */
  hangUp(location) {
    this.request(location, { method: "DELETE", keepalive: true }).catch(() => {});
  }
}

/**
 * @typedef {object} CallWishes
 * @property {Server} server
 * @property {MediaStream|null} microphone  null while there is none: the call goes on without
 * @property {HTMLAudioElement} speaker  where the agent's voice is played, unlocked by the click
 * @property {(event: any) => void} onEvent  server events in order
 * @property {(how: "ended"|"network") => void} onLost  the call ended by itself
 * @property {(error: unknown) => void} onSilent  the browser plays no sound without a click
 * @property {AbortSignal} signal  aborted when the person stops before the call is up
 *
 * @typedef {object} OpenCall
 * @property {string} location
 * @property {MediaStream} voice
 * @property {number} maxMessageBytes  what one event may have
 * @property {(event: object) => void} send
 * @property {(track: MediaStreamTrack|null) => Promise<void>} useMicrophone
 * @property {() => Promise<Iterable<any>>} stats
 * @property {(hangUp: boolean) => void} close
 */

/**
 * Open a call; resolves when sound and events flow.
 * @param {CallWishes} wishes
 * @returns {Promise<OpenCall>}
 */
export async function openCall(wishes) {
  const { server, microphone, speaker, onEvent, signal } = wishes;
  const peer = new RTCPeerConnection(await server.json("v1/realtime/ice_servers", { signal }));
  let location = "";
  let closed = false;
  const close = (/** @type {boolean} */ hangUp) => {
    if (closed) return;
    closed = true;
    peer.close();
    if (hangUp && location) server.hangUp(location);
  };
  const abort = () => close(true);
  signal.addEventListener("abort", abort);
  try {
    signal.throwIfAborted();
    const streams = microphone ? [microphone] : [];
    const { sender } = peer.addTransceiver(microphone?.getAudioTracks()[0] ?? "audio", { streams });
    const channel = peer.createDataChannel("oai-events");
    channel.addEventListener("message", ({ data }) => onEvent(JSON.parse(data)));
    const voice = voiceOf(peer, speaker, wishes.onSilent);
    const up = connected(peer, channel, signal);
    up.catch(() => {}); // awaited below; an earlier failure must not count as unhandled

    await peer.setLocalDescription(await peer.createOffer());
    await gathered(peer);
    signal.throwIfAborted();
    const answer = await offered(server, peer.localDescription?.sdp ?? "", signal);
    location = answer.location;
    await peer.setRemoteDescription({ type: "answer", sdp: answer.sdp });
    await up;

    watch(peer, channel, (how) => {
      if (closed) return;
      close(false);
      wishes.onLost(how);
    });
    return {
      location,
      voice: await voice,
      maxMessageBytes: peer.sctp?.maxMessageSize ?? 65_536,
      send: (event) => {
        if (channel.readyState === "open") channel.send(JSON.stringify(event));
      },
      useMicrophone: (track) => sender.replaceTrack(track),
      stats: async () => (await peer.getStats()).values(),
      close,
    };
  } catch (error) {
    close(true);
    throw error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/**
 * @param {RTCPeerConnection} peer
 * @param {HTMLAudioElement} speaker
 * @param {(error: unknown) => void} onSilent
 * @returns {Promise<MediaStream>}
 */
function voiceOf(peer, speaker, onSilent) {
  return new Promise((resolve) => {
    peer.addEventListener("track", ({ track, streams }) => {
      const voice = streams[0] ?? new MediaStream([track]);
      speaker.srcObject = voice;
      speaker.play().catch((error) => {
        if (error.name === "NotAllowedError") onSilent(error); // anything else: a stopped call ends play() too
      });
      resolve(voice);
    });
  });
}

/**
 * @param {Server} server
 * @param {string} sdp
 * @param {AbortSignal} signal
 * @returns {Promise<{sdp: string, location: string}>}
 */
async function offered(server, sdp, signal) {
  const headers = { "content-type": "application/sdp" };
  const response = await server.request(CALLS, { method: "POST", body: sdp, headers, signal });
  return { sdp: await response.text(), location: response.headers.get("location") ?? "" };
}

/**
 * Resolves once candidates are gathered, or after a while with those that are.
 * @param {RTCPeerConnection} peer
 * @returns {Promise<void>}
 */
function gathered(peer) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, GATHERING_MS);
    const check = () => {
      if (peer.iceGatheringState !== "complete") return;
      clearTimeout(timer);
      resolve();
    };
    peer.addEventListener("icegatheringstatechange", check);
    check();
  });
}

/**
 * Resolves once media is connected and the channel open.
 * @param {RTCPeerConnection} peer
 * @param {RTCDataChannel} channel
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function connected(peer, channel, signal) {
  return new Promise((resolve, reject) => {
    const fail = () => reject(new CallError(NO_SOUND, { retryMs: 0 }));
    const timer = setTimeout(fail, CONNECTING_MS + GATHERING_MS);
    const check = () => {
      if (peer.connectionState === "failed") fail();
      if (peer.connectionState !== "connected" || channel.readyState !== "open") return;
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
    peer.addEventListener("connectionstatechange", check);
    channel.addEventListener("open", check);
  });
}

/**
 * Tell once when a running call is over, and by whom.
 * @param {RTCPeerConnection} peer
 * @param {RTCDataChannel} channel
 * @param {(how: "ended"|"network") => void} lost
 */
function watch(peer, channel, lost) {
  let timer = 0;
  const gone = () => lost("network");
  peer.addEventListener("connectionstatechange", () => {
    clearTimeout(timer);
    if (peer.connectionState === "failed") gone();
    if (peer.connectionState === "closed") lost("ended");
    if (peer.connectionState === "disconnected") timer = window.setTimeout(gone, DISCONNECTED_MS);
  });
  channel.addEventListener("close", () => lost("ended"));
}
