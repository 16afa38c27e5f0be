// @openai/agents-realtime over WebSocket, unchanged: a tool, then an interruption. Prints one JSON line of what it saw.
// Arguments: the server's ws:// address, two files of raw 24 kHz PCM: a question, and an interruption. Without the second
// it only asks the question, whatever answers.
import { readFileSync } from "node:fs";
import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { clock, recited, sleep, times, until, watched } from "./watch.mjs";

const [url, question, interruption] = process.argv.slice(2);
const STEP_BYTES = 960; // 20 ms

function opened(instructions, tools) {
  const agent = new RealtimeAgent({ name: "A", instructions, tools });
  const session = new RealtimeSession(agent, { transport: "websocket", model: "voice-agent" });
  return { session, seen: watched(session) };
}

async function speak(session, file) {
  const sound = readFileSync(file);
  const start = performance.now();
  for (let at = 0, n = 0; at < sound.length; at += STEP_BYTES, n++) {
    const piece = sound.subarray(at, at + STEP_BYTES);
    session.sendAudio(piece.buffer.slice(piece.byteOffset, piece.byteOffset + piece.byteLength));
    await sleep(Math.max(0, start + n * 20 - performance.now()));
  }
}

async function callsATool() {
  const calls = [];
  const { session, seen } = opened('call clock {"zone": "KST"}', [clock(tool, calls)]);
  await session.connect({ apiKey: "x", url });
  session.sendMessage("What time is it?");
  await until("the answer", () => JSON.stringify(session.history).includes("It is noon."));
  await until("its end", () => times(seen, "response.done") >= 2);
  const history = session.history.map((item) => item.role ?? item.type);
  session.close();
  return { calls, history, errors: seen.errors, demoted: seen.demoted(), types: [...new Set(seen.types)] };
}

async function isInterrupted() {
  const { session, seen } = opened(`say ${process.env.STORY}`, []);
  let bytes = 0;
  let interrupted = 0;
  session.on("audio", (event) => (bytes += event.data.byteLength));
  session.on("audio_interrupted", () => interrupted++);
  await session.connect({ apiKey: "x", url });
  await speak(session, question);
  await until("sound", () => bytes > 0);
  await speak(session, interruption);
  await until("the truncation", () => seen.types.includes("conversation.item.truncated"));
  await until("the second answer", () => times(seen, "response.done") >= 2);
  const told = await recited(session, seen);
  const history = session.history.map((item) => ({ role: item.role, content: item.content }));
  session.close();
  return { bytes, interrupted, history, recited: told, errors: seen.errors, demoted: seen.demoted() };
}

async function isAnswered() {
  const { session, seen } = opened("Answer in one short sentence.", []);
  let bytes = 0;
  session.on("audio", (event) => (bytes += event.data.byteLength));
  await session.connect({ apiKey: "x", url });
  await speak(session, question);
  await until("the answer", () => times(seen, "response.done") >= 1);
  await until("the words", () => JSON.stringify(session.history[0]?.content ?? "").includes("?"));
  const history = session.history.map((item) => ({ role: item.role, content: item.content }));
  session.close();
  return { bytes, history, errors: seen.errors, demoted: seen.demoted() };
}

if (!interruption) {
  console.log(JSON.stringify(await isAnswered()));
  process.exit(0);
}
console.log(JSON.stringify({ tool: await callsATool(), interruption: await isInterrupted() }));
process.exit(0);
