import assert from "node:assert/strict";
import { test } from "node:test";

import { Voice, linkOf, median, reading } from "../../web/latency.js";
import { eased, loudness } from "../../web/sound.js";

/** Levels of 10 ms blocks, as [ms, dB] stretches, from 0 on. */
function voice(...stretches) {
  const made = new Voice();
  let at = 0;
  for (const [ms, db] of stretches) {
    for (let n = 0; n < ms / 10; n += 1) made.push((at += 10), db);
  }
  return made;
}

test("a voice's runs are found to the block", () => {
  const found = voice([500, -80], [300, -20], [1000, -80], [200, -25], [300, -80]);
  assert.deepEqual(found.runs, [
    { fromMs: 500, toMs: 800 },
    { fromMs: 1800, toMs: 2000 },
  ]);
});

test("a short pause lies within a sentence, and a click is none", () => {
  assert.equal(voice([100, -80], [100, -20], [200, -80], [100, -20], [300, -80]).runs.length, 1);
  assert.equal(voice([300, -80], [10, -10], [300, -80]).runs.length, 0);
});

test("noise is not a voice once the floor has risen to it", () => {
  const noisy = voice([200, -70], [20_000, -40], [500, -10], [500, -40]);
  const last = noisy.runs.at(-1);
  assert.ok(last && Math.abs(last.toMs - 20_700) <= 10, JSON.stringify(noisy.runs));
});

test("the last loud instant before and the first one after", () => {
  const found = voice([500, -80], [300, -20], [1000, -80], [200, -20], [300, -80]);
  assert.equal(found.lastBetween(0, 1700), 800);
  assert.equal(found.lastBetween(0, 1900), 1900);
  assert.equal(found.lastBetween(0, 100), null);
  assert.equal(found.lastBetween(801, 1700), null, "said for an earlier turn");
  assert.equal(found.firstFrom(900), 1800);
  assert.equal(found.firstFrom(1801), null);
});

test("runs are bounded", () => {
  const many = voice(...Array.from({ length: 60 }, (_, n) => [400, n % 2 ? -20 : -80]));
  assert.equal(many.runs.length, 16);
});

test("a reading's parts sum to the total at the ear", () => {
  const turn = { total_ms: 600, parts_ms: { vad: 100, endpoint: 300, thinker: 0.2, playout: 199.8 } };
  const found = reading(turn, 750);
  assert.equal(found.totalMs, 750);
  assert.ok(found.atEar);
  assert.deepEqual(found.parts.at(-1), { name: "Network and browser", ms: 150 });
  assert.ok(Math.abs(found.parts.reduce((sum, { ms }) => sum + ms, 0) - 750) < 1);
});

test("a last sound here that the server took for silence shortens the waiting", () => {
  const turn = { total_ms: 600, parts_ms: { vad: 100, endpoint: 300, thinker: 200 } };
  const found = reading(turn, 450);
  assert.deepEqual([found.totalMs, found.atEar], [450, true]);
  assert.deepEqual(found.parts, [{ name: "Waiting for the end", ms: 250 }, { name: "Thinking", ms: 200 }]);
  assert.equal(reading(turn, 150).atEar, false, "sooner than the server could have thought");
});

test("without a measurement here, or with one that cannot be, the server's own is shown", () => {
  const turn = { total_ms: 600, parts_ms: { vad: 600 } };
  assert.deepEqual(reading(turn, null), { totalMs: 600, atEar: false, parts: [{ name: "Silence noticed", ms: 600 }] });
  assert.equal(reading(turn, -1).atEar, false);
  assert.equal(reading({ total_ms: null }, 500), null);
});

test("the median of one, two and three", () => {
  const of = (...totals) => median(totals.map((totalMs) => ({ totalMs, atEar: true, parts: [] })));
  assert.deepEqual([of(), of(3), of(1, 3), of(9, 1, 2)], [null, 3, 2, 2]);
});

test("the line's figures come from the selected pair and the inbound sound", () => {
  const reports = [
    { id: "T", type: "transport", selectedCandidatePairId: "P" },
    { id: "P", type: "candidate-pair", currentRoundTripTime: 0.02, localCandidateId: "L" },
    { id: "L", type: "local-candidate", candidateType: "relay" },
    { id: "I", type: "inbound-rtp", kind: "audio", jitter: 0.004, packetsReceived: 98, packetsLost: 2 },
  ];
  assert.deepEqual(linkOf(reports), { roundTripMs: 20, jitterMs: 4, lossShare: 0.02, relayed: true });
  assert.deepEqual(linkOf([]), { roundTripMs: null, jitterMs: null, lossShare: null, relayed: false });
});

test("loudness is 0 for silence, 1 for full scale, and grows between", () => {
  assert.deepEqual([loudness(-120), loudness(0)], [0, 1]);
  assert.ok(loudness(-40) > 0 && loudness(-40) < loudness(-20) && loudness(-20) < 1);
});

test("a meter rises at once and falls slowly", () => {
  assert.equal(eased(0.2, 0.9), 0.9);
  assert.ok(eased(0.9, 0) > 0.5 && eased(0.9, 0) < 0.9);
});
