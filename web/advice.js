/**
 * What to tell a person when something fails, always with what to do next, and when to try again. Pure.
 */

/** A failure for the person in front of the page; `retryMs` is null where trying again by itself is no use. */
export class CallError extends Error {
  /**
   * @param {string} message
   * @param {{needsKey?: boolean, retryMs?: number|null}} [options]
   */
  constructor(message, { needsKey = false, retryMs = null } = {}) {
    super(message);
    this.name = "CallError";
    this.needsKey = needsKey;
    this.retryMs = retryMs;
  }
}

/**
 * What to tell about a microphone that cannot be had.
 * @param {string} name  the DOMException's name
 * @returns {string}
 */
export function microphoneAdvice(name) {
  switch (name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The microphone is blocked. Allow it for this page (the icon beside the address), then start again.";
    case "NotFoundError":
    case "OverconstrainedError":
      return "No microphone found. Plug one in or switch it on, then start again.";
    case "NotReadableError":
    case "AbortError":
      return "The microphone is in use by another program. Close that program, then start again.";
    case "InsecureContext":
      return "Browsers give the microphone only to secure pages. Open this page over https, or as http://localhost.";
    default:
      return "The microphone could not be opened. Check the system's sound settings, then start again.";
  }
}

/**
 * The failure that an HTTP answer stands for.
 * @param {number} status
 * @param {string} message  the server's own words, may be empty
 * @param {{retryAfter?: string|null, key?: string}} [rest]  seconds; the API key that was sent
 * @returns {CallError}
 */
export function refusal(status, message, { retryAfter = null, key = "" } = {}) {
  if (status === 503 || status === 429) {
    const reason = (message || "The agent is busy").replace(/[.\s]*$/, ".");
    const seconds = Number(retryAfter) || 0;
    const when = seconds ? `${seconds} second${seconds === 1 ? "" : "s"}` : "a moment";
    return new CallError(`${reason} Try again in ${when}.`, { retryMs: 1000 * (seconds || 2) });
  }
  if (status === 401 && key) {
    return new CallError("This API key is not accepted. Check it for typing errors, or ask for a new one.", {
      needsKey: true,
    });
  }
  if (status === 401) return new CallError("This server wants an API key.", { needsKey: true });
  if (status >= 500) {
    return new CallError(message || `The server failed (${status}). Start again.`, { retryMs: 2000 });
  }
  return new CallError(message || `The server refused the call (${status}).`);
}

/**
 * Why a call ended by itself, from the end reason of its timeline; null if it is worth trying again at once.
 * @param {string} reason
 * @returns {string|null}
 */
export function endAdvice(reason) {
  switch (reason) {
    case "time is over":
      return "The call ended: nobody spoke for a long time, or it reached its longest time. Start again to go on.";
    case "client_hangup":
      return "The call was hung up from elsewhere. Start again to go on.";
    case "events not taken":
      return "This page was too slow to follow the call. Close other programs, then start again.";
    default:
      return null;
  }
}

/**
 * How long to wait before an attempt: doubling up to 10 s, spread so that not all pages come at once.
 * @param {number} attempt  1 for the first
 * @param {number} random  0 to 1
 * @returns {number}  ms
 */
export function retryDelay(attempt, random) {
  return Math.min(10_000, 500 * 2 ** (attempt - 1)) * (0.75 + 0.5 * random);
}

/** With the delays above about three minutes; then the person decides. */
export const MAX_ATTEMPTS = 22;
