/**
 * The transcript's other forms: what a reload finds again, what a new call is told, what a person downloads. Pure.
 *
 * @typedef {import("./events.js").Caption} Caption
 */

const MAX_RETOLD = 40; // a server takes in 64 items at once, and a small model reads no more

/**
 * What was really said and heard of a caption.
 * @param {Caption} caption
 * @returns {string}
 */
export function asHeard({ text, heard, cut }) {
  return (cut ? text.slice(0, heard) : text).trim();
}

/**
 * The events that give a new session the conversation so far, as it was heard.
 * @param {readonly Caption[]} captions
 * @returns {{type: string, item: {id: string}}[]}
 */
export function retold(captions) {
  return captions
    .filter((one) => one.final && asHeard(one) !== "")
    .slice(-MAX_RETOLD)
    .map((one) => ({
      type: "conversation.item.create",
      item: {
        id: one.id,
        type: "message",
        role: one.who === "agent" ? "assistant" : "user",
        content: [{ type: one.who === "agent" ? "output_text" : "input_text", text: asHeard(one) }],
      },
    }));
}

/**
 * The captions a lost call leaves: what was being said is over, cut where it was.
 * @param {readonly Caption[]} captions
 * @returns {readonly Caption[]}
 */
export function settled(captions) {
  return captions
    .map((one) => {
      const unheard = one.who === "agent" && one.heard < one.text.length;
      return one.final && !unheard ? one : { ...one, final: true, cut: one.cut || unheard };
    })
    .filter((one) => asHeard(one) !== "");
}

/**
 * What to keep for a reload of the page.
 * @param {readonly Caption[]} captions
 * @returns {string}
 */
export function packed(captions) {
  return JSON.stringify(settled(captions));
}

/**
 * The captions out of what was kept; none if it is nothing of ours.
 * @param {string|null} text
 * @returns {readonly Caption[]}
 */
export function unpacked(text) {
  try {
    const found = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found.filter(isCaption) : [];
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

/**
 * The transcript as a text file.
 * @param {readonly Caption[]} captions
 * @param {string} model
 * @param {Date} when
 * @returns {string}
 */
export function asText(captions, model, when) {
  const lines = settled(captions).map((one) => {
    const cut = one.cut ? " [interrupted]" : "";
    return `${one.who === "agent" ? "Agent" : "You"}: ${asHeard(one)}${cut}`;
  });
  return [`Conversation with ${model} (an AI), ${when.toISOString()}`, "", ...lines, ""].join("\n");
}

/**
 * @param {any} one
 * @returns {one is Caption}
 */
function isCaption(one) {
  return (
    typeof one?.id === "string" &&
    typeof one.text === "string" &&
    typeof one.heard === "number" &&
    (one.who === "user" || one.who === "agent")
  );
}
