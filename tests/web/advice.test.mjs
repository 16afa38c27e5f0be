import assert from "node:assert/strict";
import { test } from "node:test";

import { eased, loudness } from "../../web/level.js";
import { microphoneAdvice, refusalAdvice } from "../../web/peer.js";

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

test("a busy server says when to come again", () => {
  assert.equal(refusalAdvice(503, "Busy with others.", "4"), "Busy with others. Try again in 4 seconds.");
  assert.equal(refusalAdvice(503, "Not ready: loading", "2"), "Not ready: loading. Try again in 2 seconds.");
  assert.match(refusalAdvice(503, "", null), /busy\. Try again in a moment/);
});

test("other refusals pass on the server's words, or the status", () => {
  assert.equal(refusalAdvice(400, "No audio.", null), "No audio.");
  assert.match(refusalAdvice(418, "", null), /418/);
  assert.match(refusalAdvice(401, "", null), /API key/);
});

test("loudness is 0 for silence and nothing, 1 for full scale, and grows between", () => {
  assert.equal(loudness([]), 0);
  assert.equal(loudness(new Float32Array(512)), 0);
  assert.equal(loudness(new Float32Array(512).fill(1)), 1);
  const soft = loudness(new Float32Array(512).fill(0.01));
  const loud = loudness(new Float32Array(512).fill(0.1));
  assert.ok(soft > 0 && soft < loud && loud < 1);
});

test("a meter rises at once and falls slowly", () => {
  assert.equal(eased(0.2, 0.9), 0.9);
  const falling = eased(0.9, 0);
  assert.ok(falling > 0.5 && falling < 0.9);
});
