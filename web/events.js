/**
 * Realtime server events to captions. Pure: a list in, a new list out, untouched captions keep their identity.
 *
 * @typedef {{id: string, who: "user"|"agent", text: string, final: boolean, cut: boolean}} Caption
 * @typedef {{type: string, [key: string]: any}} ServerEvent
 */

const MAX_CAPTIONS = 200; // the oldest go first

/**
 * The captions after one event; the same list when it changes none.
 * @param {readonly Caption[]} captions
 * @param {ServerEvent} event
 * @returns {readonly Caption[]}
 */
export function caption(captions, event) {
  switch (event.type) {
    case "conversation.item.added":
      return added(captions, event.item);
    case "conversation.item.input_audio_transcription.delta":
    case "response.output_audio_transcript.delta":
    case "response.output_text.delta":
      return changed(captions, event.item_id, (one) => ({ ...one, text: one.text + event.delta }));
    case "conversation.item.input_audio_transcription.completed":
      return heard(captions, event);
    case "conversation.item.input_audio_transcription.failed":
      return captions.filter((one) => one.id !== event.item_id);
    case "response.output_audio_transcript.done":
      return changed(captions, event.item_id, (one) => ({ ...one, text: event.transcript, final: true }));
    case "response.output_text.done":
      return changed(captions, event.item_id, (one) => ({ ...one, text: event.text, final: true }));
    case "conversation.item.truncated":
      return changed(captions, event.item_id, (one) => ({ ...one, final: true, cut: true }));
    case "conversation.item.retrieved":
      return changed(captions, event.item.id, (one) => ({ ...one, text: textOf(event.item) }));
    default:
      return captions;
  }
}

/**
 * What to ask the server for after an event: the words that were really heard, once a reply was cut.
 * @param {ServerEvent} event
 * @returns {object[]}
 */
export function questions(event) {
  if (event.type === "session.created") {
    const transcription = { model: "whisper-1" };
    return [{ type: "session.update", session: { type: "realtime", audio: { input: { transcription } } } }];
  }
  if (event.type === "conversation.item.truncated") {
    return [{ type: "conversation.item.retrieve", item_id: event.item_id }];
  }
  return [];
}

/**
 * @param {readonly Caption[]} captions
 * @param {any} item
 * @returns {readonly Caption[]}
 */
function added(captions, item) {
  if (item.type !== "message" || item.role === "system" || captions.some((one) => one.id === item.id)) {
    return captions;
  }
  const who = item.role === "assistant" ? "agent" : "user";
  const text = textOf(item);
  const fresh = { id: item.id, who, text, final: text !== "", cut: false };
  return [...captions, /** @type {Caption} */ (fresh)].slice(-MAX_CAPTIONS);
}

/**
 * @param {readonly Caption[]} captions
 * @param {ServerEvent} event
 * @returns {readonly Caption[]}
 */
function heard(captions, event) {
  const text = event.transcript.trim();
  if (!text) return captions.filter((one) => one.id !== event.item_id);
  return changed(captions, event.item_id, (one) => ({ ...one, text, final: true }));
}

/**
 * @param {readonly Caption[]} captions
 * @param {string} id
 * @param {(one: Caption) => Caption} change
 * @returns {readonly Caption[]}
 */
function changed(captions, id, change) {
  if (!captions.some((one) => one.id === id)) return captions;
  return captions.map((one) => (one.id === id ? change(one) : one));
}

/**
 * @param {any} item
 * @returns {string}
 */
function textOf(item) {
  return (item.content ?? []).map((/** @type {any} */ part) => part.transcript ?? part.text ?? "").join(" ");
}
