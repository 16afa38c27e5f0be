/**
 * Telling a new session an old conversation, and silencing the greeting it begins with. Pure: events in, events out.
 */

import { spokenItem } from "./events.js";
import { retold } from "./history.js";

const GREETING = "greeting"; // names the wish that a server may refuse
const OVER = new Set(["conversation.item.truncated", "output_audio_buffer.stopped"]); // a reply that can be deleted

export class Retelling {
  /** @type {Set<string>} */
  waiting = new Set(); // items that were told and are not yet taken in
  /** @type {Set<string>} */
  unwanted = new Set(); // items of a second greeting

  /**
   * What to send to a session that has just been created.
   * @param {readonly import("./events.js").Caption[]} captions
   * @returns {object[]}
   */
  begin(captions) {
    const events = retold(captions);
    this.waiting = new Set(events.map(({ item }) => item.id));
    this.unwanted = new Set();
    return events.length > 0 ? [{ type: "output_audio_buffer.clear" }, ...events] : [];
  }

  /**
   * Take a server event: whether it is of a second greeting, and what to do about it. Its item is deleted where the
   * server can do that.
   * @param {any} event
   * @returns {{unwanted: boolean, send: object[]}}
   */
  take(event) {
    if (event.type === "error") return { unwanted: event.error?.event_id === GREETING, send: [] };
    const item = event.type === "conversation.item.added" ? event.item : null;
    const isOurs = item !== null && this.waiting.delete(item.id);
    if (item?.role === "assistant" && !isOurs && this.waiting.size > 0) {
      this.unwanted.add(item.id);
      return { unwanted: true, send: [{ type: "output_audio_buffer.clear" }] };
    }
    const id = event.item_id ?? spokenItem(event.response_id ?? "");
    const unwanted = this.unwanted.has(id);
    const isOver = unwanted && OVER.has(event.type);
    const send = isOver ? [{ type: "conversation.item.delete", item_id: id, event_id: GREETING }] : [];
    return { unwanted, send };
  }
}
