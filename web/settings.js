/**
 * What the person chose, kept for the next visit, and what of it a session is told. Pure but for the storage it is
 * handed, which may refuse to keep anything.
 *
 * @typedef {object} Settings
 * @property {string} microphone  device id, empty for the default
 * @property {string} speaker
 * @property {string} voice  empty for the server's own
 * @property {boolean|null} latencyFirst  null for the server's own
 * @property {boolean} pushToTalk
 *
 * @typedef {Pick<Storage, "getItem"|"setItem"|"removeItem">} Keeper
 */

const NAME = "voice-agent-settings";

/** @type {Settings} */
export const DEFAULTS = { microphone: "", speaker: "", voice: "", latencyFirst: null, pushToTalk: false };

/**
 * What was kept, with defaults for what is missing or not ours.
 * @param {Keeper} keeper
 * @returns {Settings}
 */
export function recalled(keeper) {
  let found;
  try {
    found = JSON.parse(keeper.getItem(NAME) ?? "{}");
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  /** @type {any} */
  const settings = { ...DEFAULTS };
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const kept = found?.[name];
    if (typeof kept === typeof value || (value === null && typeof kept === "boolean")) settings[name] = kept;
  }
  return settings;
}

/**
 * @param {Keeper} keeper
 * @param {Settings} settings
 */
export function keep(keeper, settings) {
  keeper.setItem(NAME, JSON.stringify(settings));
}

/**
 * The session.update that brings a session to these settings.
 * @param {Settings} settings
 * @param {object|null} turnDetection  the session's own kind, for when the person does not push to talk
 * @returns {object}
 */
export function sessionUpdate({ voice, latencyFirst, pushToTalk }, turnDetection) {
  const input = {
    transcription: { model: "whisper-1" },
    ...(pushToTalk || turnDetection ? { turn_detection: pushToTalk ? null : turnDetection } : {}),
  };
  return {
    type: "session.update",
    session: {
      type: "realtime",
      audio: { input, ...(voice ? { output: { voice } } : {}) },
      ...(latencyFirst === null ? {} : { latency_first: latencyFirst }),
    },
  };
}

/**
 * The voices of a list as a server gives it: names, or objects with an id; whatever else it holds.
 * @param {any} body
 * @returns {{id: string, label: string}[]}
 */
export function voicesIn(body) {
  const list = Array.isArray(body) ? body : (body?.voices ?? body?.data ?? []);
  return (Array.isArray(list) ? list : [])
    .map((/** @type {any} */ one) => (typeof one === "string" ? { id: one } : one))
    .map((one) => ({ id: one?.id ?? one?.voice_id ?? one?.name ?? "", label: one?.name ?? one?.id ?? "" }))
    .filter(({ id }) => typeof id === "string" && id !== "");
}
