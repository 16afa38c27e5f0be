/**
 * The page's states and what leads from one to another. Pure: no DOM, no network, no time.
 *
 * @typedef {"idle"|"asking"|"connecting"|"listening"|"hearing"|"thinking"|"speaking"|"held"|"reconnecting"|"failed"}
 *   State
 * @typedef {"unknown"|"ready"|"starting"|"stopped"|"failed"|"stopping"|"gone"} Server  what is known of the server before a call
 * @typedef {{type: string, [key: string]: any}} Signal
 *
 * @typedef {object} Model
 * @property {State} state
 * @property {string} message  for the person, empty for none
 * @property {Server} server
 * @property {string} reason  why the server is not ready
 * @property {boolean} muted
 * @property {boolean} pushToTalk
 * @property {boolean} talking  the push-to-talk key is down
 * @property {string} microphone  why there is none during a call, empty while there is one
 */

/** @type {Record<State, string>} */
const WORDS = {
  idle: "Ready",
  asking: "Asking",
  connecting: "Connecting",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
  held: "Holding",
  reconnecting: "Reconnecting",
  failed: "Stopped",
};

/** @type {Record<Server, string>} */
const SERVER_WORDS = {
  unknown: "Looking",
  ready: "Ready",
  starting: "Starting",
  stopped: "Stopped",
  failed: "Failed",
  stopping: "Stopping",
  gone: "No server",
};

/**
 * Why a server that answers takes no calls, as a sentence.
 * @param {Server} server
 * @param {string} reason
 * @returns {string}  empty for a ready or an unknown one
 */
export function whyNotReady(server, reason) {
  if (server === "starting") return `The server is still starting: ${reason}.`;
  if (server === "stopping") return "The server is about to stop and takes no new calls.";
  return server === "stopped" || server === "failed" ? `The server takes no calls now: ${reason}.` : "";
}

/** @type {Model} */
export const START = {
  state: "idle",
  message: "",
  server: "unknown",
  reason: "",
  muted: false,
  pushToTalk: false,
  talking: false,
  microphone: "",
};

const LIVE = new Set(["listening", "hearing", "thinking", "speaking", "held"]);
const RUNNING = new Set([...LIVE, "asking", "connecting", "reconnecting"]);

/**
 * Whether a call is up.
 * @param {Model} model
 * @returns {boolean}
 */
export function isLive({ state }) {
  return LIVE.has(state);
}

/**
 * Whether a call is up or being made: what the button would stop.
 * @param {Model} model
 * @returns {boolean}
 */
export function isRunning({ state }) {
  return RUNNING.has(state);
}

/**
 * Whether the agent has the floor: there is something to interrupt.
 * @param {Model} model
 * @returns {boolean}
 */
export function canInterrupt({ state }) {
  return state === "speaking" || state === "held" || state === "thinking";
}

/**
 * Whether the microphone's sound may leave this machine.
 * @param {Model} model
 * @returns {boolean}
 */
export function isOpen({ muted, pushToTalk, talking }) {
  return !muted && (!pushToTalk || talking);
}

/**
 * The state in a word or two.
 * @param {Model} model
 * @returns {string}
 */
export function word({ state, server, muted, pushToTalk, talking, microphone }) {
  if (state === "idle") return SERVER_WORDS[server];
  if (microphone && (state === "listening" || state === "hearing")) return "No microphone";
  if (state !== "listening") return WORDS[state];
  if (muted) return "Muted";
  if (pushToTalk) return talking ? "Hearing you" : "Hold to talk";
  return WORDS.listening;
}

/**
 * The next model; the same object when the signal means nothing in this state.
 * @param {Model} model
 * @param {Signal} signal
 *   start, allowed, connected, stop; failed {message}, lost {message}; retry; server {event}; inside {state};
 *   readiness {server, reason}; mute {on}, pushToTalk {on}, talk {on}; microphone {message}; notice {message}
 * @returns {Model}
 */
export function next(model, signal) {
  const { state } = model;
  switch (signal.type) {
    case "start":
      return RUNNING.has(state) ? model : begun(model, "asking");
    case "allowed":
      return state === "asking" ? { ...model, state: "connecting" } : model;
    case "connected":
      return state === "connecting" || state === "reconnecting" ? begun(model, "listening") : model;
    case "stop":
      return state === "idle" ? model : begun(model, "idle");
    case "failed":
      return state === "idle" ? model : { ...begun(model, "failed"), message: signal.message };
    case "lost":
      if (!LIVE.has(state) && state !== "reconnecting") return model;
      return { ...begun(model, "reconnecting"), message: signal.message };
    case "server":
      return LIVE.has(state) ? fromServer(model, signal.event) : model;
    case "inside":
      return fromInside(model, signal.state);
    case "readiness":
      return changed(model, { server: signal.server, reason: signal.reason ?? "" });
    case "mute":
      return changed(model, { muted: signal.on });
    case "pushToTalk":
      return changed(model, { pushToTalk: signal.on, talking: false });
    case "talk":
      return model.pushToTalk && LIVE.has(state) ? changed(model, { talking: signal.on }) : model;
    case "microphone":
      return changed(model, { microphone: signal.message });
    case "notice":
      return changed(model, { message: signal.message });
    default:
      return model;
  }
}

/**
 * @param {Model} model
 * @param {Partial<Model>} part
 * @returns {Model}
 */
function changed(model, part) {
  const after = { ...model, ...part };
  const keys = /** @type {(keyof Model)[]} */ (Object.keys(part));
  return keys.some((key) => after[key] !== model[key]) ? after : model;
}

/**
 * A step that leaves what was before behind; mute and push-to-talk stay as the person set them.
 * @param {Model} model
 * @param {State} state
 * @returns {Model}
 */
function begun(model, state) {
  return { ...model, state, message: "", talking: false };
}

/**
 * @param {Model} model
 * @param {{type: string, [key: string]: any}} event  a Realtime server event
 * @returns {Model}
 */
function fromServer(model, event) {
  const { state } = model;
  switch (event.type) {
    case "input_audio_buffer.speech_started":
      return { ...model, state: "hearing", message: "" };
    case "input_audio_buffer.speech_stopped":
      return changed(model, { state: "thinking" });
    case "input_audio_buffer.cleared":
      return state === "hearing" ? { ...model, state: "listening" } : model;
    case "response.created":
      return state === "hearing" ? model : changed(model, { state: "thinking" });
    case "output_audio_buffer.started":
      return state === "hearing" ? model : changed(model, { state: "speaking" });
    case "output_audio_buffer.stopped":
    case "output_audio_buffer.cleared":
      return state === "speaking" || state === "held" ? { ...model, state: "listening" } : model;
    case "response.done":
      return afterReply(model, event.response);
    case "conversation.item.input_audio_transcription.completed":
      return state === "thinking" && !event.transcript.trim() ? { ...model, state: "listening" } : model;
    case "conversation.item.input_audio_transcription.failed":
      return {
        ...model,
        state: state === "thinking" ? "listening" : state,
        message: `Your words could not be made out (${event.error.message}). Say them again.`,
      };
    case "error":
      return { ...model, message: event.error.message };
    default:
      return model;
  }
}

/**
 * What only the timeline tells: a reply that is held while somebody speaks over it.
 * @param {Model} model
 * @param {string} inside  the session's own state
 * @returns {Model}
 */
function fromInside(model, inside) {
  if (model.state === "speaking" && inside === "held") return { ...model, state: "held" };
  if (model.state === "held" && inside === "speaking") return { ...model, state: "speaking" };
  return model;
}

/**
 * A reply that never sounded ends here; one that sounds ends with its playout.
 * @param {Model} model
 * @param {any} response
 * @returns {Model}
 */
function afterReply(model, response) {
  const state = model.state === "thinking" ? "listening" : model.state;
  const error = response.status === "failed" ? response.status_details?.error?.message : "";
  if (error) return { ...model, state, message: `No answer this time: ${error}` };
  return changed(model, { state });
}
