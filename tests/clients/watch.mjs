// What a session of @openai/agents-realtime saw. An event that its own parser does not know is passed on under "*" and
// nowhere else: `demoted` are the types of those. Runs on Node and in a browser.
let last;

export function watched(session) {
  const seen = { types: [], errors: [], raw: [], parsed: {}, demoted: () => demoted(seen) };
  last = seen;
  session.transport.on("*", (event) => {
    if (event.type !== "error" && !(event.type in seen.parsed)) {
      seen.parsed[event.type] = 0;
      session.transport.on(event.type, () => seen.parsed[event.type]++); // "*" comes first
    }
    seen.types.push(event.type);
    seen.raw.push(event);
  });
  session.on("error", (error) => seen.errors.push(JSON.stringify(error)));
  return seen;
}

function demoted(seen) {
  const count = (type) => seen.types.filter((one) => one === type).length;
  return Object.keys(seen.parsed).filter((type) => seen.parsed[type] !== count(type));
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(what, test) {
  const end = Date.now() + 40_000;
  while (!test()) {
    if (Date.now() > end) throw new Error(`it never came: ${what}; there were ${last.types} ${last.errors}`);
    await sleep(10);
  }
}

export const times = (seen, type) => seen.types.filter((one) => one === type).length;

// A clock as a tool; `calls` gets the zones it was asked about.
export const clock = (tool, calls) =>
  tool({
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

// The conversation as the server's Thinker is told it (tests/realtime_server.py).
export async function recited(session, seen) {
  session.transport.sendEvent({
    type: "response.create",
    response: { conversation: "none", instructions: "recite", output_modalities: ["text"] },
  });
  await until("the history", () => seen.types.includes("response.output_text.done"));
  return JSON.parse(seen.raw.find((event) => event.type === "response.output_text.done").text);
}
