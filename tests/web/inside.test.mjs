import assert from "node:assert/strict";
import { test } from "node:test";

import { Inside } from "../../web/inside.js";
import { Sound } from "../../web/sound.js";

const CREATED = { type: "response.created" };
const SPEECH = { type: "input_audio_buffer.speech_started" };
const started = (id) => ({ type: "output_audio_buffer.started", response_id: `resp_${id}` });

/** A call whose clocks a test sets (the audio clock may stand still), and what was read of its turns. */
function call({ isSilenced = false } = {}) {
  const sound = new Sound();
  sound.now = () => (isSilenced ? 0 : call.nowMs);
  call.nowMs = 0;
  const readings = [];
  const inside = new Inside({ sound, now: () => call.nowMs, onReading: (reading) => readings.push(reading) });
  const at = (ms, event) => {
    call.nowMs = ms;
    if (event === "asked") inside.asked();
    else inside.take(event);
  };
  const loud = (who, fromMs, toMs) => sound[who].runs.push({ fromMs, toMs });
  const read = (ms, replyId) => {
    call.nowMs = ms;
    inside.read({ turns: [{ reply_id: replyId, total_ms: 300, parts_ms: { vad: 300 } }] });
    return readings.at(-1);
  };
  return { at, loud, read };
}

test("a spoken question counts from its last loud sound, a typed one from the key", () => {
  const { at, loud, read } = call();
  loud("user", 1000, 2000);
  loud("agent", 2900, 4000);
  at(1300, SPEECH);
  at(2500, CREATED);
  at(2800, started("a"));
  assert.equal(read(3600, "a").totalMs, 900);
  loud("agent", 8400, 9000);
  at(8000, "asked");
  at(8100, CREATED);
  at(8300, started("b"));
  assert.equal(read(9100, "b").totalMs, 400);
});

test("a question that was too quiet to be heard here is not taken for the one before", () => {
  const { at, loud, read } = call();
  loud("user", 1000, 2000);
  loud("agent", 11_500, 12_000);
  at(10_000, SPEECH);
  at(11_000, CREATED);
  at(11_400, started("a"));
  assert.equal(read(12_200, "a"), undefined, "it may still be heard");
  assert.deepEqual(read(14_500, "a"), { totalMs: 300, atEar: false, parts: [{ name: "Silence noticed", ms: 300 }] });
});

test("an answer that is heard late is waited for", () => {
  const { at, loud, read } = call();
  at(1000, "asked");
  at(1100, CREATED);
  at(1200, started("a"));
  assert.equal(read(2000, "a"), undefined);
  loud("agent", 2100, 3000);
  assert.equal(read(2400, "a").totalMs, 1100);
});

test("a greeting answers nobody, whoever spoke before it", () => {
  const { at, loud, read } = call();
  loud("user", 1000, 2000);
  loud("agent", 11_500, 12_000);
  at(11_000, CREATED);
  at(11_400, started("a"));
  assert.equal(read(12_200, "a"), undefined);
});

test("a question asked while another's answer begins keeps its own time", () => {
  const { at, loud, read } = call();
  at(1000, "asked");
  at(1100, CREATED);
  at(1200, "asked");
  at(1300, started("a"));
  at(1400, CREATED);
  at(1500, started("b"));
  loud("agent", 1550, 2000);
  assert.equal(read(2300, "b").totalMs, 350);
});

test("where nothing can be measured for want of a click, the server's figures are shown", () => {
  const { at, read } = call({ isSilenced: true });
  at(1000, SPEECH);
  at(2500, CREATED);
  at(2800, started("a"));
  assert.equal(read(3600, "a"), undefined);
  assert.deepEqual(read(5900, "a"), { totalMs: 300, atEar: false, parts: [{ name: "Silence noticed", ms: 300 }] });
});
