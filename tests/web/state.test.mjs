import assert from "node:assert/strict";
import { test } from "node:test";

import { START, WORDS, isLive, next } from "../../web/state.js";

const server = (type, rest = {}) => ({ type: "server", event: { type, ...rest } });
const at = (state) => ({ state, message: "" });

/** state, signal, state after it */
const MOVES = [
  ["idle", { type: "start" }, "connecting"],
  ["failed", { type: "start" }, "connecting"],
  ["connecting", { type: "start" }, "connecting"],
  ["listening", { type: "start" }, "listening"],
  ["connecting", { type: "connected" }, "listening"],
  ["idle", { type: "connected" }, "idle"],
  ["connecting", { type: "stop" }, "idle"],
  ["speaking", { type: "stop" }, "idle"],
  ["failed", { type: "stop" }, "idle"],
  ["connecting", { type: "failed", message: "busy" }, "failed"],
  ["speaking", { type: "failed", message: "gone" }, "failed"],
  ["idle", { type: "failed", message: "late" }, "idle"],
  ["listening", server("input_audio_buffer.speech_started"), "hearing"],
  ["speaking", server("input_audio_buffer.speech_started"), "hearing"],
  ["hearing", server("input_audio_buffer.speech_stopped"), "thinking"],
  ["hearing", server("input_audio_buffer.cleared"), "listening"],
  ["listening", server("response.created"), "thinking"],
  ["hearing", server("response.created"), "hearing"],
  ["thinking", server("output_audio_buffer.started"), "speaking"],
  ["hearing", server("output_audio_buffer.started"), "hearing"],
  ["speaking", server("output_audio_buffer.stopped"), "listening"],
  ["hearing", server("output_audio_buffer.cleared"), "hearing"],
  ["thinking", server("response.done", { response: { status: "completed" } }), "listening"],
  ["speaking", server("response.done", { response: { status: "completed" } }), "speaking"],
  ["thinking", server("conversation.item.input_audio_transcription.completed", { transcript: " " }), "listening"],
  ["thinking", server("conversation.item.input_audio_transcription.completed", { transcript: "hi" }), "thinking"],
  ["idle", server("response.created"), "idle"],
  ["failed", server("output_audio_buffer.started"), "failed"],
  ["listening", server("rate_limits.updated"), "listening"],
  ["listening", { type: "nonsense" }, "listening"],
];

for (const [from, signal, to] of MOVES) {
  const name = signal.event?.type ?? signal.type;
  test(`${name} in ${from} leads to ${to}`, () => assert.equal(next(at(from), signal).state, to));
}

test("a signal without meaning keeps the very object", () => {
  const model = at("idle");
  assert.equal(next(model, server("response.created")), model);
});

test("a failed reply says so and the call goes on", () => {
  const response = { status: "failed", status_details: { error: { message: "engine died" } } };
  const model = next(at("thinking"), server("response.done", { response }));
  assert.equal(model.state, "listening");
  assert.match(model.message, /engine died/);
});

test("an error event shows its message and keeps the state", () => {
  const model = next(at("speaking"), server("error", { error: { message: "no such voice" } }));
  assert.deepEqual(model, { state: "speaking", message: "no such voice" });
});

test("a message goes when the user speaks or starts anew", () => {
  const shown = { state: "listening", message: "old" };
  assert.equal(next(shown, server("input_audio_buffer.speech_started")).message, "");
  assert.equal(next({ state: "failed", message: "old" }, { type: "start" }).message, "");
});

test("every state has a word, and the page begins idle", () => {
  assert.equal(START.state, "idle");
  for (const [state, word] of Object.entries(WORDS)) {
    assert.ok(word.length > 0);
    assert.equal(isLive(state), !["idle", "connecting", "failed"].includes(state));
  }
});
