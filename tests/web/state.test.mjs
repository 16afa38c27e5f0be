import assert from "node:assert/strict";
import { test } from "node:test";

import { START, canInterrupt, isLive, isOpen, isRunning, next, whyNotReady, word } from "../../web/state.js";

const STATES = [
  "idle", "asking", "connecting", "listening", "hearing", "thinking", "speaking", "held", "reconnecting", "failed",
];
const server = (type, rest = {}) => ({ type: "server", event: { type, ...rest } });
const inside = (state) => ({ type: "inside", state });
const at = (state, rest = {}) => ({ ...START, state, ...rest });
const lost = { type: "lost", message: "lost" };
const failed = { type: "failed", message: "busy" };
const done = (status) => server("response.done", { response: { status } });
const misheard = server("conversation.item.input_audio_transcription.failed", { error: { message: "engine died" } });
const understood = (transcript) => server("conversation.item.input_audio_transcription.completed", { transcript });

/** state, signal, state after it */
const MOVES = [
  ["idle", { type: "start" }, "asking"],
  ["failed", { type: "start" }, "asking"],
  ["connecting", { type: "start" }, "connecting"],
  ["listening", { type: "start" }, "listening"],
  ["asking", { type: "allowed" }, "connecting"],
  ["idle", { type: "allowed" }, "idle"],
  ["connecting", { type: "connected" }, "listening"],
  ["reconnecting", { type: "connected" }, "listening"],
  ["idle", { type: "connected" }, "idle"],
  ["asking", { type: "stop" }, "idle"],
  ["connecting", { type: "stop" }, "idle"],
  ["speaking", { type: "stop" }, "idle"],
  ["reconnecting", { type: "stop" }, "idle"],
  ["failed", { type: "stop" }, "idle"],
  ["asking", failed, "failed"],
  ["connecting", failed, "failed"],
  ["speaking", failed, "failed"],
  ["reconnecting", failed, "failed"],
  ["idle", failed, "idle"],
  ["listening", lost, "reconnecting"],
  ["held", lost, "reconnecting"],
  ["reconnecting", lost, "reconnecting"],
  ["connecting", lost, "connecting"],
  ["idle", lost, "idle"],
  ["failed", lost, "failed"],
  ["listening", server("input_audio_buffer.speech_started"), "hearing"],
  ["speaking", server("input_audio_buffer.speech_started"), "hearing"],
  ["held", server("input_audio_buffer.speech_started"), "hearing"],
  ["hearing", server("input_audio_buffer.speech_stopped"), "thinking"],
  ["hearing", server("input_audio_buffer.cleared"), "listening"],
  ["speaking", server("input_audio_buffer.cleared"), "speaking"],
  ["listening", server("response.created"), "thinking"],
  ["hearing", server("response.created"), "hearing"],
  ["thinking", server("output_audio_buffer.started"), "speaking"],
  ["hearing", server("output_audio_buffer.started"), "hearing"],
  ["speaking", server("output_audio_buffer.stopped"), "listening"],
  ["held", server("output_audio_buffer.cleared"), "listening"],
  ["hearing", server("output_audio_buffer.cleared"), "hearing"],
  ["thinking", done("completed"), "listening"],
  ["speaking", done("completed"), "speaking"],
  ["held", done("completed"), "held"],
  ["thinking", understood(" "), "listening"],
  ["thinking", understood("hi"), "thinking"],
  ["thinking", misheard, "listening"],
  ["speaking", misheard, "speaking"],
  ["speaking", inside("held"), "held"],
  ["held", inside("speaking"), "speaking"],
  ["held", inside("held"), "held"],
  ["listening", inside("held"), "listening"],
  ["idle", server("response.created"), "idle"],
  ["failed", server("output_audio_buffer.started"), "failed"],
  ["reconnecting", server("output_audio_buffer.started"), "reconnecting"],
  ["listening", server("rate_limits.updated"), "listening"],
  ["listening", { type: "nonsense" }, "listening"],
];

for (const [from, signal, to] of MOVES) {
  const name = signal.event?.type ?? `${signal.type} ${signal.state ?? ""}`;
  test(`${name} in ${from} leads to ${to}`, () => assert.equal(next(at(from), signal).state, to));
}

test("a signal without meaning keeps the very object", () => {
  for (const signal of [server("response.created"), { type: "mute", on: false }, inside("held"), { type: "nonsense" }]) {
    const model = at("idle");
    assert.equal(next(model, signal), model);
  }
});

test("a failed reply says so and the call goes on", () => {
  const response = { status: "failed", status_details: { error: { message: "engine died" } } };
  const model = next(at("thinking"), server("response.done", { response }));
  assert.equal(model.state, "listening");
  assert.match(model.message, /engine died/);
});

test("words that cannot be made out are asked for again", () => {
  assert.match(next(at("thinking"), misheard).message, /engine died.* again/);
});

test("an error event shows its message and keeps the state", () => {
  const model = next(at("speaking"), server("error", { error: { message: "no such voice" } }));
  assert.deepEqual(model, at("speaking", { message: "no such voice" }));
});

test("a message goes when the user speaks, starts anew or is connected again", () => {
  const old = { message: "old" };
  assert.equal(next(at("listening", old), server("input_audio_buffer.speech_started")).message, "");
  assert.equal(next(at("failed", old), { type: "start" }).message, "");
  assert.equal(next(at("reconnecting", old), { type: "connected" }).message, "");
});

test("a new reason for reconnecting takes the old one's place", () => {
  assert.equal(next(at("reconnecting", { message: "old" }), lost).message, "lost");
});

test("mute and push-to-talk outlive a lost call; the pressed key does not", () => {
  const model = next(at("hearing", { muted: true, pushToTalk: true, talking: true }), lost);
  assert.deepEqual([model.muted, model.pushToTalk, model.talking], [true, true, false]);
});

test("the microphone is open unless muted, or pushed to talk and not pushed", () => {
  const table = [
    [false, false, false, true],
    [true, false, false, false],
    [false, true, false, false],
    [false, true, true, true],
    [true, true, true, false],
  ];
  for (const [muted, pushToTalk, talking, open] of table) {
    assert.equal(isOpen({ ...START, muted, pushToTalk, talking }), open);
  }
});

test("one talks by key only with push-to-talk and a call", () => {
  const talk = { type: "talk", on: true };
  assert.equal(next(at("listening", { pushToTalk: true }), talk).talking, true);
  assert.equal(next(at("listening"), talk).talking, false);
  assert.equal(next(at("idle", { pushToTalk: true }), talk).talking, false);
  const talking = at("listening", { pushToTalk: true, talking: true });
  assert.equal(next(talking, { type: "pushToTalk", on: false }).talking, false);
});

test("what runs, what lives and what can be interrupted", () => {
  const those = (is) => STATES.filter((state) => is(at(state)));
  assert.deepEqual(those(isLive), ["listening", "hearing", "thinking", "speaking", "held"]);
  assert.deepEqual(those((model) => !isRunning(model)), ["idle", "failed"]);
  assert.deepEqual(those(canInterrupt), ["thinking", "speaking", "held"]);
});

test("every state has a word, and says Ready only of a ready server", () => {
  for (const state of STATES) assert.ok(word(at(state)).length > 0);
  const idle = (name) => word(next(START, { type: "readiness", server: name, reason: "loading" }));
  assert.equal(idle("ready"), "Ready");
  for (const name of ["unknown", "starting", "stopped", "failed", "stopping", "gone"]) assert.doesNotMatch(idle(name), /^Ready$/);
});

test("listening says who does not listen", () => {
  assert.equal(word(at("listening")), "Listening");
  assert.equal(word(at("listening", { muted: true })), "Muted");
  assert.equal(word(at("listening", { microphone: "gone" })), "No microphone");
  assert.equal(word(at("hearing", { microphone: "gone" })), "No microphone"); // what it heard last was before that
  assert.equal(word(at("listening", { pushToTalk: true })), "Hold to talk");
  assert.equal(word(at("listening", { pushToTalk: true, talking: true })), "Hearing you");
});

test("a server that is stopped or failed is not called starting", () => {
  const table = [
    ["starting", /still starting: why\.$/],
    ["stopped", /takes no calls now: why\.$/],
    ["failed", /takes no calls now: why\.$/],
    ["stopping", /about to stop/],
    ["ready", /^$/],
    ["unknown", /^$/],
  ];
  for (const [server, words] of table) assert.match(whyNotReady(server, "why"), words);
});
