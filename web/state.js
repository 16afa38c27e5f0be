/**
 * The page's states and what leads from one to another. Pure: no DOM, no network, no time.
 *
 * @typedef {"idle"|"connecting"|"listening"|"hearing"|"thinking"|"speaking"|"failed"} State
 * @typedef {{type: string, [key: string]: any}} Signal
 * @typedef {{state: State, message: string}} Model
 */

/** @type {Record<State, string>} */
export const WORDS = {
  idle: "Ready",
  connecting: "Connecting",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
  failed: "Stopped",
};

/** @type {Model} */
export const START = { state: "idle", message: "" };

const LIVE = new Set(["listening", "hearing", "thinking", "speaking"]);

/**
 * Whether a call is up.
 * @param {State} state
 * @returns {boolean}
 */
export function isLive(state) {
  return LIVE.has(state);
}

/**
 * The next model; the same object when the signal means nothing in this state.
 * @param {Model} model
 * @param {Signal} signal  start, stop, connected, failed {message}, or {type: "server", event}
 * @returns {Model}
 */
export function next(model, signal) {
  const { state } = model;
  switch (signal.type) {
    case "start":
      return state === "idle" || state === "failed" ? { state: "connecting", message: "" } : model;
    case "stop":
      return state === "idle" ? model : { state: "idle", message: "" };
    case "connected":
      return state === "connecting" ? { state: "listening", message: "" } : model;
    case "failed":
      return state === "idle" ? model : { state: "failed", message: signal.message };
    case "server":
      return isLive(state) ? fromServer(model, signal.event) : model;
    default:
      return model;
  }
}

/**
 * @param {Model} model
 * @param {{type: string, [key: string]: any}} event  a Realtime server event
 * @returns {Model}
 */
function fromServer(model, event) {
  switch (event.type) {
    case "input_audio_buffer.speech_started":
      return { state: "hearing", message: "" };
    case "input_audio_buffer.speech_stopped":
      return moved(model, "thinking");
    case "input_audio_buffer.cleared":
      return model.state === "hearing" ? moved(model, "listening") : model;
    case "response.created":
      return model.state === "hearing" ? model : moved(model, "thinking");
    case "output_audio_buffer.started":
      return model.state === "hearing" ? model : moved(model, "speaking");
    case "output_audio_buffer.stopped":
    case "output_audio_buffer.cleared":
      return model.state === "speaking" ? moved(model, "listening") : model;
    case "response.done":
      return afterReply(model, event.response);
    case "conversation.item.input_audio_transcription.completed":
      return model.state === "thinking" && !event.transcript.trim() ? moved(model, "listening") : model;
    case "error":
      return { state: model.state, message: event.error.message };
    default:
      return model;
  }
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
  if (error) return { state, message: `No answer this time: ${error}` };
  return state === model.state ? model : moved(model, state);
}

/**
 * @param {Model} model
 * @param {State} state
 * @returns {Model}
 */
function moved(model, state) {
  return { state, message: model.message };
}
