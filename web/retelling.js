/**
 * Telling a new session an old conversation, and silencing the greeting it begins with. Pure: events in, events out.
 */

import { retold } from "./history.js";

const GREETING = "greeting"; // names the wish that a server may refuse

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
    const unwanted = this.unwanted.has(event.item_id);
    const isCut = unwanted && event.type === "conversation.item.truncated";
    const send = isCut ? [{ type: "conversation.item.delete", item_id: event.item_id, event_id: GREETING }] : [];
    return { unwanted, send };
  }
}
