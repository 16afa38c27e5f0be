/**
 * What a person adds to the conversation by hand, as client events, and the refusal of it in this page's words. Pure.
 */

const PICTURE = "picture"; // names the wish that a server may refuse
const BLIND = "This agent cannot see pictures: it hears and reads only.";

/**
 * @param {string} text
 * @returns {object}
 */
export function textMessage(text) {
  return userMessage({ type: "input_text", text });
}

/**
 * @param {string} url  a data URL
 * @returns {object}
 */
export function pictureMessage(url) {
  return { ...userMessage({ type: "input_image", image_url: url }), event_id: PICTURE };
}

/**
 * A server event, its error in words for the person if it refuses a picture.
 * @param {any} event
 * @returns {any}
 */
export function worded(event) {
  const isPicture = event.type === "error" && event.error?.event_id === PICTURE;
  return isPicture ? { ...event, error: { ...event.error, message: BLIND } } : event;
}

/**
 * @param {object} part
 * @returns {object}
 */
function userMessage(part) {
  return { type: "conversation.item.create", item: { type: "message", role: "user", content: [part] } };
}
