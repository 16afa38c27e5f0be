import assert from "node:assert/strict";
import { test } from "node:test";

import { Retelling } from "../../web/retelling.js";

const said = (id, who) => ({ id, who, text: "words", heard: 5, final: true, cut: false });
const added = (id, role) => ({ type: "conversation.item.added", item: { id, type: "message", role, content: [] } });
const types = (events) => events.map(({ type }) => type);

test("a first conversation is told nothing, and its greeting is wanted", () => {
  const retelling = new Retelling();
  assert.deepEqual(retelling.begin([]), []);
  assert.deepEqual(retelling.take(added("g", "assistant")), { unwanted: false, send: [] });
});

test("a second greeting is silenced, hidden and deleted; what was told is not", () => {
  const retelling = new Retelling();
  const told = retelling.begin([said("u", "user"), said("a", "agent")]);
  assert.deepEqual(types(told), ["output_audio_buffer.clear", "conversation.item.create", "conversation.item.create"]);
  const greeting = retelling.take(added("g", "assistant"));
  assert.deepEqual([greeting.unwanted, types(greeting.send)], [true, ["output_audio_buffer.clear"]]);
  assert.equal(retelling.take({ type: "response.output_audio_transcript.delta", item_id: "g" }).unwanted, true);
  const cut = retelling.take({ type: "conversation.item.truncated", item_id: "g" });
  assert.deepEqual(types(cut.send), ["conversation.item.delete"]);
  for (const event of [added("u", "user"), added("a", "assistant"), added("later", "assistant")]) {
    assert.equal(retelling.take(event).unwanted, false);
  }
});

test("a second greeting that was over before it could be silenced is deleted too, and never shown as speaking", () => {
  const retelling = new Retelling();
  retelling.begin([said("u", "user")]);
  retelling.take(added("item_g", "assistant"));
  const buffer = (type) => retelling.take({ type: `output_audio_buffer.${type}`, response_id: "resp_g" });
  assert.deepEqual(buffer("started"), { unwanted: true, send: [] });
  assert.deepEqual(types(buffer("stopped").send), ["conversation.item.delete"]);
  assert.equal(retelling.take({ type: "output_audio_buffer.stopped", response_id: "resp_x" }).unwanted, false);
});

test("a server that cannot delete may say so unheard; other errors are heard", () => {
  const retelling = new Retelling();
  assert.equal(retelling.take({ type: "error", error: { event_id: "greeting" } }).unwanted, true);
  assert.equal(retelling.take({ type: "error", error: { event_id: "picture" } }).unwanted, false);
});
