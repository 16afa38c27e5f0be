import assert from "node:assert/strict";
import { test } from "node:test";

import { caption, questions } from "../../web/events.js";

const run = (...events) => events.reduce((captions, event) => caption(captions, event), []);
const user = (id) => ({
  type: "conversation.item.added",
  item: { id, type: "message", role: "user", content: [{ type: "input_audio", transcript: null }] },
});
const agent = (id) => ({
  type: "conversation.item.added",
  item: { id, type: "message", role: "assistant", content: [] },
});
const heard = (item_id, transcript) => ({
  type: "conversation.item.input_audio_transcription.completed",
  item_id,
  transcript,
});
const says = (item_id, delta) => ({ type: "response.output_audio_transcript.delta", item_id, delta });

test("a spoken turn waits for its words, then is final", () => {
  assert.deepEqual(run(user("u")), [{ id: "u", who: "user", text: "", final: false, cut: false }]);
  assert.deepEqual(run(user("u"), heard("u", " hello ")), [
    { id: "u", who: "user", text: "hello", final: true, cut: false },
  ]);
});

test("a turn without words leaves no caption", () => {
  assert.deepEqual(run(user("u"), heard("u", "  ")), []);
  const failed = { type: "conversation.item.input_audio_transcription.failed", item_id: "u" };
  assert.deepEqual(run(user("u"), failed), []);
});

test("the agent's words grow and end with the whole transcript", () => {
  const grown = run(agent("a"), says("a", "Good "), says("a", "day"));
  assert.equal(grown[0].text, "Good day");
  assert.equal(grown[0].final, false);
  const done = { type: "response.output_audio_transcript.done", item_id: "a", transcript: "Good day." };
  assert.deepEqual(caption(grown, done)[0], { id: "a", who: "agent", text: "Good day.", final: true, cut: false });
});

test("a transcript that comes late keeps its place", () => {
  const captions = run(user("u"), agent("a"), says("a", "Yes"), heard("u", "Really?"));
  assert.deepEqual(captions.map((one) => one.text), ["Really?", "Yes"]);
});

test("a cut reply shows what was heard", () => {
  const captions = run(
    agent("a"),
    says("a", "One two three"),
    { type: "conversation.item.truncated", item_id: "a", audio_end_ms: 400 },
    { type: "conversation.item.retrieved", item: { id: "a", content: [{ type: "output_audio", transcript: "One" }] } },
  );
  assert.deepEqual(captions, [{ id: "a", who: "agent", text: "One", final: true, cut: true }]);
});

test("typed text is final at once; system messages and function calls are not captions", () => {
  const item = { id: "t", type: "message", role: "user", content: [{ type: "input_text", text: "hi" }] };
  assert.equal(run({ type: "conversation.item.added", item })[0].final, true);
  const hidden = [
    { id: "s", type: "message", role: "system", content: [{ type: "input_text", text: "be kind" }] },
    { id: "f", type: "function_call", name: "clock", call_id: "c", arguments: "" },
  ];
  assert.deepEqual(run(...hidden.map((one) => ({ type: "conversation.item.added", item: one }))), []);
});

test("events of unknown items and unknown types change nothing", () => {
  const before = run(user("u"));
  assert.equal(caption(before, says("nobody", "x")), before);
  assert.equal(caption(before, { type: "rate_limits.updated", rate_limits: [] }), before);
});

test("captions are bounded: the oldest go", () => {
  const captions = run(...Array.from({ length: 230 }, (_, n) => user(`u${n}`)));
  assert.equal(captions.length, 200);
  assert.equal(captions[0].id, "u30");
});

test("the page asks for transcription first, and for the heard words after a cut", () => {
  const [update] = questions({ type: "session.created", session: {} });
  assert.equal(update.session.type, "realtime");
  assert.ok(update.session.audio.input.transcription.model);
  assert.deepEqual(questions({ type: "conversation.item.truncated", item_id: "a" }), [
    { type: "conversation.item.retrieve", item_id: "a" },
  ]);
  assert.deepEqual(questions({ type: "response.done" }), []);
});
