import assert from "node:assert/strict";
import { test } from "node:test";

import { asHeard, asText, packed, retold, settled, unpacked } from "../../web/history.js";

const user = (id, text) => ({ id, who: "user", text, heard: text.length, final: true, cut: false });
const agent = (id, text, heard = text.length, cut = false) => ({ id, who: "agent", text, heard, final: true, cut });
const item = (event) => event.item;

test("a new session is told what was said and heard, in order and with its ids", () => {
  const events = retold([user("u", "Hello"), agent("a", "Good day to you", 8, true)]);
  assert.deepEqual(events.map(({ type }) => type), ["conversation.item.create", "conversation.item.create"]);
  assert.deepEqual(item(events[0]), {
    id: "u",
    type: "message",
    role: "user",
    content: [{ type: "input_text", text: "Hello" }],
  });
  assert.deepEqual(item(events[1]).content, [{ type: "output_text", text: "Good day" }]);
  assert.equal(item(events[1]).role, "assistant");
});

test("it is told the last forty, and nothing of what is unfinished or was not heard", () => {
  const many = Array.from({ length: 60 }, (_, n) => user(`u${n}`, "word"));
  assert.equal(retold(many).length, 40);
  assert.equal(item(retold(many)[0]).id, "u20");
  const none = [{ ...user("u", ""), final: false }, agent("a", "One two", 0, true), { ...agent("b", "x"), final: false }];
  assert.deepEqual(retold(none), []);
});

test("a lost call settles what was being said: cut where it was heard, gone where it was not", () => {
  const open = { ...agent("a", "One two three", 7), final: false };
  assert.deepEqual(settled([open]), [agent("a", "One two three", 7, true)]);
  assert.deepEqual(settled([{ ...agent("a", "One", 0), final: false }, { ...user("u", ""), final: false }]), []);
  const whole = [user("u", "Hi"), agent("a", "Hello")];
  assert.deepEqual(settled(whole), whole);
});

test("what is kept comes back, and what is not ours does not", () => {
  const captions = [user("u", "Hi"), agent("a", "Hello there", 5, true)];
  assert.deepEqual(unpacked(packed(captions)), captions);
  for (const text of [null, "", "nonsense", "{}", "[1, null, {}]"]) assert.deepEqual(unpacked(text), []);
});

test("the transcript as text says who, what was heard, and that it is an AI", () => {
  const text = asText([user("u", "Hi"), agent("a", "Hello there", 5, true)], "voice-agent", new Date(0));
  assert.match(text, /voice-agent \(an AI\), 1970/);
  assert.match(text, /You: Hi\nAgent: Hello \[interrupted\]\n/);
});

test("heard words are trimmed", () => {
  assert.equal(asHeard(agent("a", "One two ", 4, true)), "One");
});
