// @openai/agents-realtime over WebRTC in a browser, unchanged: functions that a test calls in the page it is loaded into.
import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { clock, recited, sleep, times, until, watched } from "./watch.mjs";

async function opened(url, apiKey, instructions, tools) {
  const agent = new RealtimeAgent({ name: "A", instructions, tools });
  const transport = new OpenAIRealtimeWebRTC({ audioElement: document.getElementById("speaker") });
  const session = new RealtimeSession(agent, { transport, model: "voice-agent" });
  const seen = watched(session);
  await session.connect({ apiKey, url });
  return { session, seen };
}

window.callsATool = async (url, apiKey) => {
  const calls = [];
  const { session, seen } = await opened(url, apiKey, 'call clock {"zone": "KST"}', [clock(tool, calls)]);
  const callId = session.transport.callId;
  session.sendMessage("What time is it?");
  await until("the answer", () => JSON.stringify(session.history).includes("It is noon."));
  await until("its end", () => times(seen, "response.done") >= 2);
  await until("its sound's end", () => seen.types.at(-1) === "output_audio_buffer.stopped");
  const history = session.history.map((item) => item.role ?? item.type);
  session.close();
  return { callId, calls, history, errors: seen.errors, demoted: seen.demoted(), types: [...new Set(seen.types)] };
};

// `heardSound` keeps only what had sounded when the truncation came.
window.isInterrupted = async (url, apiKey, story, question, interruption) => {
  const { session, seen } = await opened(url, apiKey, `slowly ${story}`, []);
  let heard;
  session.transport.on("conversation.item.truncated", () => (heard ??= window.heardSound.length));
  window.listen();
  await window.speak(question);
  await until("sound", () => seen.types.includes("output_audio_buffer.started"));
  await sleep(1500); // of the story, for a person to be tired of
  await window.speak(interruption);
  await until("the truncation", () => seen.types.includes("conversation.item.truncated"));
  await until("the second answer", () => times(seen, "response.done") >= 2);
  const history = session.history.map(({ role, status, content }) => ({ role, status, content }));
  const told = await recited(session, seen); // its own item is kept in the client's history
  session.close();
  window.heardSound.length = heard;
  const raw = seen.raw.filter((event) => ["response.done", "conversation.item.truncated"].includes(event.type));
  const types = [...new Set(seen.types)];
  return { history, recited: told, raw, errors: seen.errors, demoted: seen.demoted(), types };
};

window.isAnswered = async (url, apiKey, question) => {
  const { session, seen } = await opened(url, apiKey, "Answer in one short sentence.", []);
  await window.speak(question);
  await until("the answer's end", () => seen.types.includes("output_audio_buffer.stopped"));
  await until("the words", () => JSON.stringify(session.history[0]?.content ?? "").includes("?"));
  const history = session.history.map((item) => ({ role: item.role, content: item.content }));
  session.close();
  return { history, errors: seen.errors, demoted: seen.demoted(), types: [...new Set(seen.types)] };
};
