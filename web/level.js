/**
 * How loud a stream is, from 0 to 1, for the eye. Only taps the sound; playing it is the audio element's business.
 */

const FLOOR_DB = -60;
const CEILING_DB = -12;

/**
 * Loudness on a scale that follows the ear: 0 at the floor of a quiet room, 1 at loud speech.
 * @param {ArrayLike<number>} samples  between -1 and 1
 * @returns {number}
 */
export function loudness(samples) {
  let sum = 0;
  for (let n = 0; n < samples.length; n += 1) sum += samples[n] * samples[n];
  const db = 10 * Math.log10(sum / Math.max(1, samples.length) + 1e-12);
  return Math.min(1, Math.max(0, (db - FLOOR_DB) / (CEILING_DB - FLOOR_DB)));
}

/**
 * Rise at once, fall slowly: one frame of the meter.
 * @param {number} shown
 * @param {number} measured
 * @returns {number}
 */
export function eased(shown, measured) {
  return measured > shown ? measured : shown + (measured - shown) * 0.15;
}

/**
 * A meter on a stream.
 * @param {AudioContext} context
 * @param {MediaStream} stream
 * @returns {{read: () => number, stop: () => void}}
 */
export function meter(context, stream) {
  const source = context.createMediaStreamSource(stream);
  const analyser = context.createAnalyser();
  analyser.fftSize = 512;
  source.connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  let shown = 0;
  return {
    read() {
      analyser.getFloatTimeDomainData(samples);
      shown = eased(shown, loudness(samples));
      return shown;
    },
    stop() {
      source.disconnect();
    },
  };
}
