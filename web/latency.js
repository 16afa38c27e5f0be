/**
 * From the user's last loud sound to the agent's first one, at the user's own ear, joined with the server's parts.
 *
 * Pure: levels and times in, figures out. Times are ms of one audio clock for both voices.
 */

export const BLOCK_MS = 10;
const LOUD_DB = -45; // what counts as audible
const ABOVE_FLOOR_DB = 12;
const FLOOR_RISE_DB = 0.02; // for each block: 2 dB a second
const GAP_MS = 250; // a shorter silence lies within a sentence
const MAX_RUNS = 16; // the oldest go

/** The server's stages in the order of the way, in words for people. */
const STAGES = /** @type {const} */ ([
  ["vad", "Silence noticed"],
  ["endpoint", "Waiting for the end"],
  ["recognizer", "Understanding"],
  ["thinker", "Thinking"],
  ["clause", "First clause"],
  ["talker", "Voice"],
  ["playout", "Playout"],
]);

/** When a voice was loud: a list of runs, each from its first to its last loud block. */
export class Voice {
  /** @type {{fromMs: number, toMs: number}[]} */
  runs = [];
  floorDb = -60;
  /** @type {number|null} */
  candidateMs = null; // one loud block alone may be a click

  /**
   * @param {number} endMs  of the block
   * @param {number} db  its level
   */
  push(endMs, db) {
    this.floorDb = Math.min(db, this.floorDb + FLOOR_RISE_DB);
    this.floorDb = Math.max(this.floorDb, -90);
    if (db < Math.max(LOUD_DB, this.floorDb + ABOVE_FLOOR_DB)) {
      this.candidateMs = null;
      return;
    }
    const last = this.runs.at(-1);
    if (last && endMs - last.toMs <= GAP_MS) {
      last.toMs = endMs;
    } else if (this.candidateMs === null) {
      this.candidateMs = endMs - BLOCK_MS;
    } else {
      this.runs.push({ fromMs: this.candidateMs, toMs: endMs });
      this.runs.splice(0, this.runs.length - MAX_RUNS);
      this.candidateMs = null;
    }
  }

  /**
   * The last loud instant between two; null if there was none. What was said before belongs to another turn.
   * @param {number} fromMs
   * @param {number} beforeMs
   * @returns {number|null}
   */
  lastBetween(fromMs, beforeMs) {
    const run = this.runs.findLast((one) => one.fromMs < beforeMs);
    const lastMs = run ? Math.min(run.toMs, beforeMs) : -Infinity;
    return lastMs >= fromMs ? lastMs : null;
  }

  /**
   * The first run that began from an instant on; null if there is none.
   * @param {number} fromMs
   * @returns {number|null}
   */
  firstFrom(fromMs) {
    return this.runs.find((run) => run.fromMs >= fromMs)?.fromMs ?? null;
  }
}

/**
 * @typedef {object} Part
 * @property {string} name
 * @property {number} ms
 *
 * @typedef {object} Reading  of one turn
 * @property {number} totalMs
 * @property {boolean} atEar  measured at the user's ear, else only within the server
 * @property {Part[]} parts  they sum to the total
 */

/**
 * The read-out of one turn; null while the server has no total for it. What the way to the ear added is a part of its own;
 * where the last sound here was later than what the server took for the last voice (a breath, a room), its silence began
 * later too, and that is taken off the waiting.
 * @param {{parts_ms?: Record<string, number>, total_ms?: number|null}} turn  as the timeline has it
 * @param {number|null} earMs  what was measured here, null where it could not be
 * @returns {Reading|null}
 */
export function reading(turn, earMs) {
  const serverMs = turn.total_ms ?? null;
  if (serverMs === null) return null;
  /** @type {Part[]} */
  const stages = STAGES.map(([stage, name]) => ({ name, ms: turn.parts_ms?.[stage] ?? 0 }));
  const parts = stages.filter(({ ms }) => ms >= 1);
  const lateMs = serverMs - (earMs ?? -Infinity);
  if (earMs === null || lateMs > waitingMs(turn)) return { totalMs: serverMs, atEar: false, parts };
  if (lateMs <= 0) return { totalMs: earMs, atEar: true, parts: [...parts, { name: "Network and browser", ms: -lateMs }] };
  return { totalMs: earMs, atEar: true, parts: without(parts, lateMs) };
}

/**
 * How long the server waited for more words.
 * @param {{parts_ms?: Record<string, number>}} turn
 * @returns {number}
 */
function waitingMs({ parts_ms: ms = {} }) {
  return (ms.vad ?? 0) + (ms.endpoint ?? 0);
}

/**
 * The parts with so much taken off the first of them.
 * @param {readonly Part[]} parts
 * @param {number} offMs
 * @returns {Part[]}
 */
function without(parts, offMs) {
  let leftMs = offMs;
  const shorter = parts.map(({ name, ms }) => {
    const takenMs = Math.min(leftMs, ms);
    leftMs -= takenMs;
    return { name, ms: ms - takenMs };
  });
  return shorter.filter(({ ms }) => ms >= 1);
}

/**
 * The middle of the totals.
 * @param {readonly Reading[]} readings
 * @returns {number|null}
 */
export function median(readings) {
  if (readings.length === 0) return null;
  const sorted = readings.map(({ totalMs }) => totalMs).sort((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)] + sorted[Math.ceil(middle)]) / 2;
}

/**
 * @typedef {object} Link  how the line is
 * @property {number|null} roundTripMs
 * @property {number|null} jitterMs
 * @property {number|null} lossShare  0 to 1, of the agent's packets
 * @property {boolean} relayed
 */

/**
 * The line's figures out of getStats().
 * @param {Iterable<any>} reports
 * @returns {Link}
 */
export function linkOf(reports) {
  const all = [...reports];
  const byId = new Map(all.map((report) => [report.id, report]));
  const transport = all.find(({ type }) => type === "transport");
  const pair = byId.get(transport?.selectedCandidatePairId) ?? all.find((one) => one.nominated && one.state === "succeeded");
  const inbound = all.find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
  const received = (inbound?.packetsReceived ?? 0) + (inbound?.packetsLost ?? 0);
  return {
    roundTripMs: pair?.currentRoundTripTime === undefined ? null : 1000 * pair.currentRoundTripTime,
    jitterMs: inbound?.jitter === undefined ? null : 1000 * inbound.jitter,
    lossShare: received > 0 ? Math.max(0, inbound.packetsLost) / received : null,
    relayed: byId.get(pair?.localCandidateId)?.candidateType === "relay",
  };
}
