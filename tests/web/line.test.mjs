import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.addEventListener ??= () => {};
const { Line } = await import("../../web/line.js");

/** A line whose call is up, with a server that answers by what each path has; and what became of it. */
function line(answers) {
  const [asked, told, ended] = [[], [], []];
  const answer = async (path) => {
    asked.push(path);
    if (path in answers) return answers[path];
    throw new Error(`nothing is there for ${path}`);
  };
  const server = { json: answer, request: (path, { method }) => answer(`${method} ${path}`) };
  const made = new Line({
    server,
    tell: (signal) => told.push(signal.type),
    onCall: () => {},
    onEnd: (error) => ended.push(error.message),
    microphone: () => null,
  });
  made.facts = { instance: "i" };
  made.call = { location: "calls/1", close: () => {} };
  return { made, asked, told, ended };
}

const READY = { instance: "i", ready: true, state: "ready", reasons: [] };

for (const how of ["ended", "network"]) {
  test(`a call that was hung up elsewhere is not made again, lost as "${how}"`, async () => {
    const { made, asked, ended } = line({ "page.json": READY, "calls/1/timeline": { end_reason: "client_hangup" } });
    await made.lost(how, new AbortController().signal);
    assert.match(ended[0], /hung up from elsewhere/);
    assert.ok(!asked.some((path) => path.startsWith("DELETE")), asked);
  });
}

test("a call that the network took is freed before the next is made", async () => {
  const { made, asked } = line({ "page.json": READY, "calls/1/timeline": { end_reason: "" }, "DELETE calls/1": {} });
  await made.lost("network", new AbortController().signal); // ends where Node has no WebRTC
  assert.deepEqual(asked, ["page.json", "calls/1/timeline", "DELETE calls/1"]);
});

test("a server that was started anew is not asked for a call that it never had", async () => {
  const { made, asked } = line({ "page.json": { ...READY, instance: "another" } });
  await made.lost("network", new AbortController().signal);
  assert.deepEqual(asked, ["page.json"]);
});
