// @openai/agents-realtime over WebSocket, unchanged: a tool, then an interruption. Prints one JSON line of what it saw.
// Arguments: the server's ws:// address, two files of raw 24 kHz PCM: a question, and an interruption.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";

const [url, question, interruption] = process.argv.slice(2);
const STEP_BYTES = 960; // 20 ms

function opened(instructions, tools) {
  const agent = new RealtimeAgent({ name: "A", instructions, tools });
  const session = new RealtimeSession(agent, { transport: "websocket", model: "voice-agent" });
  const seen = { types: [], errors: [], raw: [] };
  session.transport.on("*", (event) => {
    seen.types.push(event.type);
    seen.raw.push(event);
  });
  session.on("error", (error) => seen.errors.push(JSON.stringify(error)));
  return { session, seen };
}

async function until(what, test) {
  const end = Date.now() + 40_000;
  while (!test()) {
    if (Date.now() > end) throw new Error(`it never came: ${what}`);
    await sleep(10);
  }
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
  const clock = tool({
    name: "clock",
    description: "The time in a zone.",
    strict: false,
    parameters: {
      type: "object",
      properties: { zone: { type: "string" } },
      required: ["zone"],
      additionalProperties: true,
    },
    execute: async ({ zone }) => {
      calls.push(zone);
      return "noon";
    },
  });
  const { session, seen } = opened('call clock {"zone": "KST"}', [clock]);
  await session.connect({ apiKey: "x", url });
  session.sendMessage("What time is it?");
  await until("the answer", () => JSON.stringify(session.history).includes("It is noon."));
  await until("its end", () => seen.types.filter((type) => type === "response.done").length >= 2);
  const history = session.history.map((item) => item.role ?? item.type);
  session.close();
  return { calls, history, errors: seen.errors, types: [...new Set(seen.types)] };
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
  await until("the second answer", () => seen.types.filter((type) => type === "response.done").length >= 2);
  session.transport.sendEvent({
    type: "response.create",
    response: { conversation: "none", instructions: "recite", output_modalities: ["text"] },
  });
  await until("the history", () => seen.types.includes("response.output_text.done"));
  const recited = seen.raw.find((event) => event.type === "response.output_text.done").text;
  const history = session.history.map((item) => ({ role: item.role, content: item.content }));
  session.close();
  return { bytes, interrupted, history, recited: JSON.parse(recited), errors: seen.errors };
}

console.log(JSON.stringify({ tool: await callsATool(), interruption: await isInterrupted() }));
process.exit(0);
