/**
 * One call: microphone, RTCPeerConnection, the data channel "oai-events", and the HTTP around them.
 * Speaks only the public protocol. Every failure becomes a CallError that says what to do.
 */

const CALLS = "/v1/realtime/calls";
const GATHERING_MS = 1500; // candidates that come later than this are not worth the wait
const CONNECTING_MS = 15000;
const DISCONNECTED_MS = 5000; // a short loss of the network heals itself

/** A failure for the person in front of the page. */
export class CallError extends Error {
  /**
   * @param {string} message
   * @param {{needsKey?: boolean}} [options]
   */
  constructor(message, { needsKey = false } = {}) {
    super(message);
    this.name = "CallError";
    this.needsKey = needsKey;
  }
}

/**
 * What to tell about a microphone that cannot be had.
 * @param {string} name  the DOMException's name
 * @returns {string}
 */
export function microphoneAdvice(name) {
  switch (name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The microphone is blocked. Allow it for this page (the icon beside the address), then start again.";
    case "NotFoundError":
    case "OverconstrainedError":
      return "No microphone found. Plug one in or switch it on, then start again.";
    case "NotReadableError":
    case "AbortError":
      return "The microphone is in use by another program. Close that program, then start again.";
    case "InsecureContext":
      return "Browsers give the microphone only to secure pages. Open this page over https, or as http://localhost.";
    default:
      return "The microphone could not be opened. Check the system's sound settings, then start again.";
  }
}

/**
 * What to tell about an answer that is no call.
 * @param {number} status
 * @param {string} message  the server's own words, may be empty
 * @param {string|null} retryAfter  seconds
 * @returns {string}
 */
export function refusalAdvice(status, message, retryAfter) {
  if (status === 503) {
    const reason = (message || "The agent is busy").replace(/[.\s]*$/, ".");
    return `${reason} Try again in ${retryAfter ? `${retryAfter} seconds` : "a moment"}.`;
  }
  if (status === 401) return "This server wants an API key.";
  return message || `The server refused the call (${status}).`;
}

/**
 * @typedef {object} CallWishes
 * @property {string} key  API key, may be empty
 * @property {HTMLAudioElement} speaker  where the agent's voice is played, unlocked by the click
 * @property {(event: any) => void} onEvent  server events in order
 * @property {(message: string) => void} onLost  the call ended by itself
 * @property {AbortSignal} signal  aborted when the person stops before the call is up
 *
 * @typedef {object} OpenCall
 * @property {MediaStream} microphone
 * @property {MediaStream} voice
 * @property {(event: object) => void} send
 * @property {() => void} close
 */

/**
 * Open a call; resolves when sound and events flow.
 * @param {CallWishes} wishes
 * @returns {Promise<OpenCall>}
 */
export async function openCall(wishes) {
  const { key, speaker, onEvent, onLost, signal } = wishes;
  const microphone = await openMicrophone();
  /** @type {RTCPeerConnection|undefined} */
  let peer;
  let location = "";
  let closed = false;
  /** @type {Record<string, string>} */
  const headers = key ? { authorization: `Bearer ${key}` } : {};

  const close = () => {
    if (closed) return;
    closed = true;
    microphone.getTracks().forEach((track) => track.stop());
    peer?.close();
    speaker.srcObject = null;
    if (location) fetch(location, { method: "DELETE", headers, keepalive: true }).catch(() => {});
  };
  const lost = (/** @type {string} */ message) => {
    if (closed) return;
    close();
    onLost(message);
  };

  signal.addEventListener("abort", close);
  try {
    signal.throwIfAborted();
    peer = new RTCPeerConnection(await iceServers(headers, signal));
    signal.throwIfAborted();
    for (const track of microphone.getTracks()) peer.addTrack(track, microphone);
    const channel = peer.createDataChannel("oai-events");
    channel.addEventListener("message", ({ data }) => onEvent(JSON.parse(data)));
    const voice = voiceOf(peer, speaker);
    const up = connected(peer, channel, signal);
    up.catch(() => {}); // awaited below; an earlier failure must not count as unhandled

    await peer.setLocalDescription(await peer.createOffer());
    await gathered(peer);
    signal.throwIfAborted();
    const answer = await post(peer.localDescription?.sdp ?? "", headers, signal);
    location = answer.location;
    await peer.setRemoteDescription({ type: "answer", sdp: answer.sdp });
    await up;

    watch(peer, channel, lost);
    microphone.getAudioTracks()[0].addEventListener("ended", () => {
      lost("The microphone was disconnected. Plug it in again, then start again.");
    });
    const send = (/** @type {object} */ event) => {
      if (channel.readyState === "open") channel.send(JSON.stringify(event));
    };
    return { microphone, voice: await voice, send, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** @returns {Promise<MediaStream>} */
async function openMicrophone() {
  if (!window.isSecureContext || !navigator.mediaDevices) throw new CallError(microphoneAdvice("InsecureContext"));
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    throw new CallError(microphoneAdvice(error instanceof DOMException ? error.name : ""));
  }
}

/**
 * @param {RTCPeerConnection} peer
 * @param {HTMLAudioElement} speaker
 * @returns {Promise<MediaStream>}
 */
function voiceOf(peer, speaker) {
  return new Promise((resolve) => {
    peer.addEventListener("track", ({ track, streams }) => {
      const voice = streams[0] ?? new MediaStream([track]);
      speaker.srcObject = voice;
      speaker.play().catch(() => {}); // the click has unlocked it; a stopped call ends play() too
      resolve(voice);
    });
  });
}

/**
 * @param {Record<string, string>} headers
 * @param {AbortSignal} signal
 * @returns {Promise<RTCConfiguration>}
 */
async function iceServers(headers, signal) {
  const response = await request("/v1/realtime/ice_servers", { headers, signal });
  return response.json();
}

/**
 * @param {string} sdp
 * @param {Record<string, string>} headers
 * @param {AbortSignal} signal
 * @returns {Promise<{sdp: string, location: string}>}
 */
async function post(sdp, headers, signal) {
  const typed = { ...headers, "content-type": "application/sdp" };
  const response = await request(CALLS, { method: "POST", body: sdp, headers: typed, signal });
  return { sdp: await response.text(), location: response.headers.get("location") ?? "" };
}

/**
 * @param {string} path
 * @param {RequestInit} init
 * @returns {Promise<Response>}
 */
async function request(path, init) {
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new CallError("The server does not answer. Check that it is running, then start again.");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const advice = refusalAdvice(response.status, body?.error?.message ?? "", response.headers.get("retry-after"));
  throw new CallError(advice, { needsKey: response.status === 401 });
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
    const fail = () => {
      reject(new CallError("No connection for sound could be made. A firewall or VPN may block it; try another network."));
    };
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
 * Tell once when a running call is over.
 * @param {RTCPeerConnection} peer
 * @param {RTCDataChannel} channel
 * @param {(message: string) => void} lost
 */
function watch(peer, channel, lost) {
  const gone = () => lost("The connection to the server was lost. Check that it is running, then start again.");
  let timer = 0;
  peer.addEventListener("connectionstatechange", () => {
    clearTimeout(timer);
    if (peer.connectionState === "failed" || peer.connectionState === "closed") gone();
    if (peer.connectionState === "disconnected") timer = window.setTimeout(gone, DISCONNECTED_MS);
  });
  channel.addEventListener("close", () => lost("The server ended the call."));
}
