/**
 * Realtime server events to captions. Pure: a list in, a new list out, untouched captions keep their identity.
 *
 * `heard` counts the characters of an agent's text that have reached the ear; the rest is yet to come, or was cut.
 *
 * @typedef {object} Caption
 * @property {string} id
 * @property {"user"|"agent"} who
 * @property {string} text
 * @property {number} heard
 * @property {boolean} final
 * @property {boolean} cut
 *
 * @typedef {{type: string, [key: string]: any}} ServerEvent
 */

const MAX_CAPTIONS = 200; // the oldest go first
const PICTURE = "[picture]";

/**
 * The captions after one event; the same list when it changes none.
 * @param {readonly Caption[]} captions
 * @param {ServerEvent} event
 * @returns {readonly Caption[]}
 */
export function caption(captions, event) {
  const id = event.item_id;
  switch (event.type) {
    case "conversation.item.added":
      return added(captions, event.item);
    case "conversation.item.input_audio_transcription.delta":
    case "response.output_audio_transcript.delta":
      return changed(captions, id, (one) => ({ ...one, text: one.text + event.delta }));
    case "response.output_text.delta":
      return changed(captions, id, (one) => whole({ ...one, text: one.text + event.delta }));
    case "conversation.item.input_audio_transcription.completed":
      return understood(captions, event);
    case "conversation.item.input_audio_transcription.failed":
    case "conversation.item.deleted":
      return without(captions, id);
    case "response.output_audio_transcript.done":
      return changed(captions, id, (one) => ({ ...one, text: event.transcript, final: true }));
    case "response.output_text.done":
      return changed(captions, id, (one) => whole({ ...one, text: event.text, final: true }));
    case "output_audio_buffer.stopped":
      return changed(captions, spokenItem(event.response_id), whole);
    case "conversation.item.truncated":
      return changed(captions, id, (one) => ({ ...one, final: true, cut: true }));
    case "conversation.item.retrieved":
      return retrieved(captions, event.item);
    default:
      return captions;
  }
}

/**
 * The captions once so much of a reply was heard, as the server's timeline tells while it sounds.
 * @param {readonly Caption[]} captions
 * @param {string} replyId  as the timeline spells it
 * @param {string} text  what was heard so far
 * @returns {readonly Caption[]}
 */
export function heard(captions, replyId, text) {
  return changed(captions, `item_${replyId}`, (one) =>
    one.text.startsWith(text) && text.length > one.heard ? { ...one, heard: text.length } : one,
  );
}

/**
 * What to ask the server for after an event: the words that were really heard, once a reply was cut.
 * @param {ServerEvent} event
 * @returns {object[]}
 */
export function questions(event) {
  return event.type === "conversation.item.truncated"
    ? [{ type: "conversation.item.retrieve", item_id: event.item_id }]
    : [];
}

/**
 * The item of a response: this server gives both the same name behind another prefix.
 * @param {string} responseId
 * @returns {string}
 */
export function spokenItem(responseId) {
  return responseId.replace(/^resp_/, "item_");
}

/**
 * @param {Caption} one
 * @returns {Caption}
 */
function whole(one) {
  return one.cut || one.heard === one.text.length ? one : { ...one, heard: one.text.length };
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
  const text = textOf(item);
  /** @type {Caption} */
  const fresh = {
    id: item.id,
    who: item.role === "assistant" ? "agent" : "user",
    text,
    heard: text.length,
    final: text !== "",
    cut: false,
  };
  return [...captions, fresh].slice(-MAX_CAPTIONS);
}

/**
 * @param {readonly Caption[]} captions
 * @param {ServerEvent} event
 * @returns {readonly Caption[]}
 */
function understood(captions, event) {
  const text = event.transcript.trim();
  if (!text) return without(captions, event.item_id);
  return changed(captions, event.item_id, (one) => ({ ...one, text, heard: text.length, final: true }));
}

/**
 * A cut reply as the history has it; one of which nothing was heard is gone.
 * @param {readonly Caption[]} captions
 * @param {any} item
 * @returns {readonly Caption[]}
 */
function retrieved(captions, item) {
  const text = textOf(item).trim();
  if (!text) return without(captions, item.id);
  return changed(captions, item.id, (one) =>
    one.text.startsWith(text) ? { ...one, heard: text.length } : { ...one, text, heard: text.length },
  );
}

/**
 * @param {readonly Caption[]} captions
 * @param {string} id
 * @returns {readonly Caption[]}
 */
function without(captions, id) {
  return captions.some((one) => one.id === id) ? captions.filter((one) => one.id !== id) : captions;
}

/**
 * @param {readonly Caption[]} captions
 * @param {string} id
 * @param {(one: Caption) => Caption} change
 * @returns {readonly Caption[]}
 */
function changed(captions, id, change) {
  const old = captions.find((one) => one.id === id);
  if (!old) return captions;
  const fresh = change(old);
  return fresh === old ? captions : captions.map((one) => (one === old ? fresh : one));
}

/**
 * @param {any} item
 * @returns {string}
 */
function textOf(item) {
  const parts = /** @type {any[]} */ (item.content ?? []);
  return parts.map((part) => (part.type === "input_image" ? PICTURE : (part.transcript ?? part.text ?? ""))).join(" ");
}
