import assert from "node:assert/strict";
import { test } from "node:test";

import { endAdvice, microphoneAdvice, refusal, retryDelay } from "../../web/advice.js";
import { DEFAULTS, keep, recalled, sessionUpdate, voicesIn } from "../../web/settings.js";

for (const [name, word] of [
  ["NotAllowedError", /blocked/],
  ["NotFoundError", /No microphone/],
  ["NotReadableError", /another program/],
  ["InsecureContext", /https/],
  ["SomethingNew", /sound settings/],
]) {
  test(`${name} says what to do`, () => {
    assert.match(microphoneAdvice(name), word);
    assert.match(microphoneAdvice(name), /start again|https/);
  });
}

test("a busy server says when to come again, and a page that reconnects does so then", () => {
  const busy = refusal(503, "Busy with others.", { retryAfter: "4" });
  assert.equal(busy.message, "Busy with others. Try again in 4 seconds.");
  assert.equal(busy.retryMs, 4000);
  assert.equal(refusal(503, "Not ready: loading", { retryAfter: "1" }).message, "Not ready: loading. Try again in 1 second.");
  assert.match(refusal(503, "").message, /busy\. Try again in a moment/);
});

test("no key and a wrong key read differently, and both ask for one", () => {
  const [none, wrong] = [refusal(401, "no"), refusal(401, "no", { key: "sesame" })];
  assert.match(none.message, /wants an API key/);
  assert.match(wrong.message, /not accepted/);
  assert.ok(none.needsKey && wrong.needsKey && none.retryMs === null && wrong.retryMs === null);
});

test("other refusals pass on the server's words, or the status; only the server's own are worth another try", () => {
  assert.equal(refusal(400, "No audio.").message, "No audio.");
  assert.match(refusal(418, "").message, /418/);
  assert.equal(refusal(400, "No audio.").retryMs, null);
  assert.ok(refusal(500, "").retryMs);
});

test("an end has its own words where going on at once is no use", () => {
  assert.match(endAdvice("time is over"), /longest time/);
  assert.match(endAdvice("client_hangup"), /hung up/);
  for (const reason of ["", "server_shutdown", "internal_error", "disconnected"]) assert.equal(endAdvice(reason), null);
});

test("pauses between tries double up to ten seconds, and are spread", () => {
  assert.deepEqual([1, 2, 3, 9].map((attempt) => retryDelay(attempt, 0.5)), [500, 1000, 2000, 10_000]);
  assert.ok(retryDelay(3, 0) < retryDelay(3, 1));
});

const keeper = (text) => ({ text, getItem: () => text, setItem(_, value) { this.text = value; }, removeItem() {} });

test("settings come back as they were kept; what is not ours is a default", () => {
  const store = keeper(null);
  keep(store, { ...DEFAULTS, voice: "joe", latencyFirst: false });
  assert.deepEqual(recalled(keeper(store.text)), { ...DEFAULTS, voice: "joe", latencyFirst: false });
  for (const text of [null, "nonsense", "[]", '{"voice": 3, "pushToTalk": "yes"}']) {
    assert.deepEqual(recalled(keeper(text)), DEFAULTS);
  }
});

test("a session is told only what was chosen", () => {
  const plain = sessionUpdate(DEFAULTS, null).session;
  assert.deepEqual(Object.keys(plain.audio), ["input"]);
  assert.ok(plain.audio.input.transcription && !("turn_detection" in plain.audio.input) && !("latency_first" in plain));
  const chosen = sessionUpdate({ ...DEFAULTS, voice: "joe", latencyFirst: false, pushToTalk: true }, { type: "x" }).session;
  assert.equal(chosen.audio.output.voice, "joe");
  assert.equal(chosen.latency_first, false);
  assert.equal(chosen.audio.input.turn_detection, null);
  assert.deepEqual(sessionUpdate(DEFAULTS, { type: "x" }).session.audio.input.turn_detection, { type: "x" });
});

test("voices are read from lists of names and of objects", () => {
  const joe = [{ id: "joe", label: "joe" }];
  assert.deepEqual(voicesIn({ voices: ["joe"] }), joe);
  assert.deepEqual(voicesIn({ data: [{ id: "joe" }] }), joe);
  assert.deepEqual(voicesIn([{ id: "joe", name: "Joe" }]), [{ id: "joe", label: "Joe" }]);
  for (const body of [null, {}, { voices: "joe" }, { data: [null, 3] }]) assert.deepEqual(voicesIn(body), []);
});
