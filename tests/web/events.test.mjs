import assert from "node:assert/strict";
import { test } from "node:test";

import { caption, heard, questions } from "../../web/events.js";

const run = (...events) => events.reduce((captions, event) => caption(captions, event), []);
const added = (id, role, content = []) => ({
  type: "conversation.item.added",
  item: { id, type: "message", role, content },
});
const user = (id) => added(id, "user", [{ type: "input_audio", transcript: null }]);
const agent = (id) => added(id, "assistant");
const understood = (item_id, transcript) => ({
  type: "conversation.item.input_audio_transcription.completed",
  item_id,
  transcript,
});
const says = (item_id, delta) => ({ type: "response.output_audio_transcript.delta", item_id, delta });
const said = (item_id, transcript) => ({ type: "response.output_audio_transcript.done", item_id, transcript });
const truncated = (item_id) => ({ type: "conversation.item.truncated", item_id, audio_end_ms: 400 });
const retrieved = (id, transcript) => ({
  type: "conversation.item.retrieved",
  item: { id, content: [{ type: "output_audio", transcript }] },
});

test("a spoken turn waits for its words, then is final", () => {
  assert.deepEqual(run(user("u")), [{ id: "u", who: "user", text: "", heard: 0, final: false, cut: false }]);
  assert.deepEqual(run(user("u"), understood("u", " hello ")), [
    { id: "u", who: "user", text: "hello", heard: 5, final: true, cut: false },
  ]);
});

test("a turn without words leaves no caption, nor does a deleted item", () => {
  assert.deepEqual(run(user("u"), understood("u", "  ")), []);
  assert.deepEqual(run(user("u"), { type: "conversation.item.input_audio_transcription.failed", item_id: "u" }), []);
  assert.deepEqual(run(user("u"), { type: "conversation.item.deleted", item_id: "u" }), []);
});

test("the agent's words grow unheard and end with the whole transcript", () => {
  const grown = run(agent("a"), says("a", "Good "), says("a", "day"));
  assert.deepEqual(grown, [{ id: "a", who: "agent", text: "Good day", heard: 0, final: false, cut: false }]);
  assert.equal(caption(grown, said("a", "Good day."))[0].text, "Good day.");
  assert.equal(caption(grown, said("a", "Good day."))[0].final, true);
});

test("words are marked as they are heard, never back again, and all of them at the end", () => {
  let captions = run(agent("item_a"), says("item_a", "One two three"));
  captions = heard(captions, "a", "One two");
  assert.equal(captions[0].heard, 7);
  assert.equal(heard(captions, "a", "One"), captions);
  assert.equal(heard(captions, "a", "Something else that is longer"), captions);
  assert.equal(heard(captions, "b", "One two three"), captions);
  const over = caption(captions, { type: "output_audio_buffer.stopped", response_id: "resp_a" });
  assert.equal(over[0].heard, 13);
});

test("written replies are as good as heard", () => {
  const captions = run(
    agent("a"),
    { type: "response.output_text.delta", item_id: "a", delta: "Hel" },
    { type: "response.output_text.done", item_id: "a", text: "Hello" },
  );
  assert.deepEqual(captions, [{ id: "a", who: "agent", text: "Hello", heard: 5, final: true, cut: false }]);
});

test("a transcript that comes late keeps its place", () => {
  const captions = run(user("u"), agent("a"), says("a", "Yes"), understood("u", "Really?"));
  assert.deepEqual(captions.map((one) => one.text), ["Really?", "Yes"]);
});

test("a cut reply keeps its words and says how many were heard", () => {
  const cut = run(agent("a"), says("a", "One two three"), truncated("a"), retrieved("a", "One"));
  assert.deepEqual(cut, [{ id: "a", who: "agent", text: "One two three", heard: 3, final: true, cut: true }]);
  const other = run(agent("a"), says("a", "1 2"), truncated("a"), retrieved("a", "One"));
  assert.deepEqual([other[0].text, other[0].heard], ["One", 3]);
});

test("a cut reply of which nothing was heard leaves no caption", () => {
  assert.deepEqual(run(agent("a"), says("a", "One"), truncated("a"), retrieved("a", "")), []);
});

test("typed text is final at once, a picture is named; system messages and function calls are no captions", () => {
  const typed = run(added("t", "user", [{ type: "input_text", text: "hi" }]));
  assert.deepEqual([typed[0].text, typed[0].final], ["hi", true]);
  assert.equal(run(added("p", "user", [{ type: "input_image", image_url: "data:" }]))[0].text, "[picture]");
  const call = { type: "conversation.item.added", item: { id: "f", type: "function_call", name: "clock", call_id: "c" } };
  assert.deepEqual(run(added("s", "system", [{ type: "input_text", text: "be kind" }]), call), []);
});

test("events of unknown items, unknown types and known items change nothing", () => {
  const before = run(user("u"));
  assert.equal(caption(before, says("nobody", "x")), before);
  assert.equal(caption(before, { type: "rate_limits.updated", rate_limits: [] }), before);
  assert.equal(caption(before, user("u")), before);
});

test("captions are bounded: the oldest go", () => {
  const captions = run(...Array.from({ length: 230 }, (_, n) => user(`u${n}`)));
  assert.equal(captions.length, 200);
  assert.equal(captions[0].id, "u30");
});

test("after a cut the page asks for the heard words, and for nothing else", () => {
  assert.deepEqual(questions(truncated("a")), [{ type: "conversation.item.retrieve", item_id: "a" }]);
  assert.deepEqual(questions({ type: "response.done" }), []);
});
