/**
 * The microphone of a conversation: opened, muted, changed for another, missed when it is gone and found again.
 * Also the lists of sound devices to choose from.
 *
 * @typedef {{id: string, label: string}} Device
 */

import { CallError, microphoneAdvice } from "./advice.js";

const PAUSED = "The system has paused the microphone. Check its switch or the system's settings.";
const GONE = "The microphone is gone. Plug one in or allow it and the call goes on; until then you can type.";

/** `onStream` is told of every stream that takes another's place, `onTrouble` why there is no sound, empty once there is. */
export class Microphone {
  /** @type {MediaStream|null} */
  stream = null;
  wanted = false; // a conversation is running that needs it
  enabled = true;

  /**
   * @param {(stream: MediaStream|null) => void} onStream
   * @param {(message: string) => void} onTrouble
   */
  constructor(onStream, onTrouble) {
    this.onStream = onStream;
    this.onTrouble = onTrouble;
    this.deviceId = "";
    navigator.mediaDevices?.addEventListener?.("devicechange", () => {
      if (this.wanted && !this.stream) this.find();
    });
  }

  /** Open it for a conversation; raises CallError. Closed again meanwhile, it gives nothing. */
  async open() {
    this.wanted = true;
    const stream = await openStream(this.deviceId);
    if (this.wanted) this.use(stream);
    else stopTracks(stream);
  }

  close() {
    this.wanted = false;
    stopTracks(this.stream);
    this.stream = null;
    this.onTrouble("");
    this.onStream(null);
  }

  /** @param {boolean} enabled  false sends silence, whatever else is running */
  enable(enabled) {
    this.enabled = enabled;
    for (const track of this.stream?.getTracks() ?? []) track.enabled = enabled;
  }

  /** @param {string} deviceId  empty for the default */
  choose(deviceId) {
    this.deviceId = deviceId;
    if (this.wanted) this.find();
  }

  /** Open another one in the place of what there is, or say why not; the conversation goes on either way. */
  async find() {
    try {
      await this.open();
      this.onTrouble("");
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.onTrouble(this.stream ? error.message : GONE);
    }
  }

  /** @param {MediaStream} stream */
  use(stream) {
    stopTracks(this.stream);
    this.stream = stream;
    this.enable(this.enabled);
    const [track] = stream.getAudioTracks();
    const on = (/** @type {string} */ name, /** @type {() => void} */ act) =>
      track.addEventListener(name, () => this.stream === stream && act());
    on("mute", () => this.onTrouble(PAUSED));
    on("unmute", () => this.onTrouble(""));
    on("ended", () => {
      this.stream = null;
      this.onStream(null);
      this.find();
    });
    this.onStream(stream);
  }
}

/**
 * Asks the person if they were not asked before. Raises CallError.
 * @param {string} deviceId  empty for the default; one that is gone gives the default too
 * @returns {Promise<MediaStream>}
 */
async function openStream(deviceId) {
  if (!window.isSecureContext || !navigator.mediaDevices) throw new CallError(microphoneAdvice("InsecureContext"));
  const audio = {
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    channelCount: 1,
    ...(deviceId ? { deviceId: { exact: deviceId } } : {}), // a mere wish for one is not heeded by Chromium
  };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    const { name } = /** @type {Error} */ (error);
    if (deviceId && name === "OverconstrainedError") return openStream("");
    throw new CallError(microphoneAdvice(name));
  }
}

/** @param {MediaStream|null} stream */
function stopTracks(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}

/**
 * What can be chosen; names are known only once the microphone was allowed.
 * @returns {Promise<{inputs: Device[], outputs: Device[]}>}
 */
export async function listDevices() {
  const all = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  const named = (/** @type {MediaDeviceKind} */ kind) =>
    all
      .filter((device) => device.kind === kind && device.deviceId && device.label)
      .map(({ deviceId, label }) => ({ id: deviceId, label }));
  return { inputs: named("audioinput"), outputs: canChooseSpeaker() ? named("audiooutput") : [] };
}

/** @returns {boolean} */
function canChooseSpeaker() {
  return "setSinkId" in HTMLMediaElement.prototype;
}

/**
 * Play through another device; one that is gone leaves the default.
 * @param {HTMLAudioElement} speaker
 * @param {string} deviceId  empty for the default
 */
export async function useSpeaker(speaker, deviceId) {
  if (!canChooseSpeaker() || speaker.sinkId === deviceId) return;
  await speaker.setSinkId(deviceId).catch(() => {});
}

/**
 * Whether the microphone can be had without asking.
 * @returns {Promise<boolean>}
 */
export async function isAllowed() {
  const name = /** @type {PermissionName} */ ("microphone");
  const status = await navigator.permissions?.query({ name }).catch(() => null);
  return status?.state === "granted";
}
